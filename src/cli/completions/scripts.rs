//! Scripts of the shells. Each asks the program for the words, and does what only the shell can: files, other commands.

/// Script of bash.
pub const BASH: &str = r#"# What bash completes behind poolcounter; made by "poolcounter completions bash".
_poolcounter() {
    local line=$COMP_LINE word at kind last=${COMP_WORDS[COMP_CWORD]}
    local -a words=() begins=() found
    # Bash takes a:b and a=b for three words: words without a space between them are joined.
    for (( at = 0; at <= COMP_CWORD; at++ )); do
        word=${COMP_WORDS[at]}
        [[ $at = 0 || $line = [[:space:]]* ]] && words+=("") begins+=("$at")
        line=${line#"${line%%[![:space:]]*}"}
        words[-1]+=$word line=${line#"$word"}
    done
    [[ $last = [=:] ]] && last=
    mapfile -t found < <(poolcounter completions of -- "${words[@]:1}" 2>/dev/null)
    kind=${found[0]} COMPREPLY=()
    case $kind in
        # Only readline's own completion quotes file names correctly.
        file) compopt -o default 2>/dev/null ;;
        command*)
            at=${begins[${kind#command } + 1]}
            if declare -F _command_offset >/dev/null; then
                _command_offset "$at"
            elif [[ $at = "$COMP_CWORD" ]]; then
                mapfile -t COMPREPLY < <(compgen -c -- "$last" | sort -u)
            else
                compopt -o default 2>/dev/null
            fi ;;
        *)
            COMPREPLY=("${found[@]:1}")
            COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
            COMPREPLY=("${COMPREPLY[@]#"${words[-1]%"$last"}"}") ;;
    esac
}
complete -F _poolcounter poolcounter poolcounterd
"#;

/// Script of zsh.
pub const ZSH: &str = r#"#compdef poolcounter poolcounterd
# What zsh completes behind poolcounter; made by "poolcounter completions zsh".
_poolcounter() {
    local -a found shown
    integer before
    found=("${(@f)$(poolcounter completions of -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    case $found[1] in
        file)
            compset -P '--*='
            _files ;;
        command*)
            before="${found[1]#command }+1"
            shift $before words
            (( CURRENT -= before ))
            _normal ;;
        *)
            shift found
            compset -P '--*='
            found=("${(@)found#$IPREFIX}")
            shown=("${(@)found/%$'\t'/}")
            shown=("${(@)shown/$'\t'/  }")
            compadd -l -d shown - "${(@)found%%$'\t'*}" ;;
    esac
}
_poolcounter "$@"
"#;

/// Script of fish.
pub const FISH: &str = r#"# What fish completes behind poolcounter; made by "poolcounter completions fish".
function __poolcounter
    set -l words (commandline -opc) (commandline -ct)
    set -l found (poolcounter completions of -- $words[2..-1] 2>/dev/null)
    set -q found[1]; or return
    switch $found[1]
        case file
            set -l option (string match -r -- '^--[^=]*=' $words[-1])
            set -l file (string replace -- "$option" '' $words[-1])
            printf "$option%s\n" (__fish_complete_path $file)
        case 'command*'
            set -l at (math (string replace 'command ' '' $found[1]) + 2)
            complete -C (string join ' ' -- (string escape -- $words[$at..-2]) (commandline -ct))
        case '*'
            string join \n -- $found[2..-1]
    end
end
complete -c poolcounterd -w poolcounter
complete -c poolcounter -f -a '(__poolcounter)'
"#;
