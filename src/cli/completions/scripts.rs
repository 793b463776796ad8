//! Scripts of the shells, with words in capitals in the places of generated lines.

/// Script of bash.
pub const BASH: &str = r#"# What bash completes behind poolcounter; made by "poolcounter completions bash".
_poolcounter() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} prefix=
    local command=serve at=1 word words= options= valued= runs= other= names= servers= joined= value=
    local -a rest=()
    COMPREPLY=()
    if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]]; then
        command=${COMP_WORDS[1]} at=2
    fi
    case "$command" in
WORDS    esac
    # Where the options end. In some commands, another command begins there.
    for (( ; at < COMP_CWORD; at++ )); do
        word=${COMP_WORDS[at]}
        if [[ $word = -- ]]; then
            other=$(( at + 1 ))
        elif [[ " $valued " = *" $word "* ]]; then
            (( at++ ))
            [[ ${COMP_WORDS[at]} = "=" ]] && (( at++ ))
            value=${COMP_WORDS[at]}
            while [[ ${COMP_WORDS[at+1]} = : ]]; do
                value+=:${COMP_WORDS[at+2]}
                (( at += 2 ))
            done
            [[ $word = -s || $word = --server ]] && servers+=$value,
        elif [[ $runs = last && $word != -* ]]; then
            other=$at
        elif [[ $joined || $word = : ]] && (( ${#rest[@]} )); then
            # Most shells take a:b for three words.
            rest[-1]+=$word
        elif [[ $word != -* ]]; then
            rest+=("$word")
        fi
        joined=
        [[ $word = : ]] && joined=1
        [[ $other ]] && break
    done
    [[ ! $other && $runs = last && $at = "$COMP_CWORD" && $current != -* ]] && other=$COMP_CWORD
    if [[ $other && $runs ]]; then
        if declare -F _command_offset >/dev/null; then
            _command_offset "$other"
        elif [[ $other = "$COMP_CWORD" ]]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$current" | sort -u)
        else
            compopt -o default 2>/dev/null
        fi
        return
    fi
    # Most shells take --option=value for three words.
    if [[ $current = "=" ]]; then
        current=
    elif [[ $previous = "=" && $COMP_CWORD -gt 1 ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    elif [[ $current = --*=* ]]; then
        previous=${current%%=*} current=${current#*=}
        prefix=$previous=
    fi
    if [[ $joined || $current = : ]] && (( ${#rest[@]} )); then
        current=${rest[-1]}$current
        unset "rest[-1]"
    fi
    if [[ $COMP_CWORD = 1 && $current != -* ]]; then
        words="COMMANDS"
    elif [[ ! $other ]]; then
        [[ ${#rest[@]} = 0 ]] || words=
        [[ $current = -* ]] && words=$options
        case "$command ${#rest[@]} ${rest[0]}" in
PARAMETERS        esac
        case "$command $previous" in
VALUES        esac
    fi
    if [[ $names && $current != -* ]]; then
        words+=" $(POOLCOUNTER_SERVERS=${servers:-$POOLCOUNTER_SERVERS} poolcounter completions $names 2>/dev/null)"
    fi
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$current")
    [[ $current = *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")
}
complete -F _poolcounter poolcounter poolcounterd
"#;

/// Script of zsh.
pub const ZSH: &str = r#"#compdef poolcounter poolcounterd
# What zsh completes behind poolcounter; made by "poolcounter completions zsh".
_poolcounter() {
    local -a subcommands
    local subcommand=serve
    integer dashes
    subcommands=(
COMMANDS    )
    if (( CURRENT > 2 )) && [[ ${words[2]} != -* ]]; then
        subcommand=${words[2]}
        shift words
        (( CURRENT-- ))
    elif (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then
        _describe command subcommands
        return
    fi
    case $subcommand in
ARGUMENTS    esac
}
_poolcounter_names() {
    local -a names
    local servers=
    integer at
    for (( at = 1; at < CURRENT; at++ )); do
        [[ ${words[at]} = (-s|--server) ]] && servers+=${words[at+1]},
    done
    names=(${(f)"$(POOLCOUNTER_SERVERS=${servers:-$POOLCOUNTER_SERVERS} poolcounter completions "$@" 2>/dev/null)"})
    compadd -a names
}
# Parameters of requests. The argument is the number of words before it that are no options.
_poolcounter_parameter() {
    setopt local_options extended_glob
    integer at
    for (( at = 1; at < CURRENT; at++ )); do
        case "$1 ${words[1]} ${words[at]}" in
PARAMETERS        esac
    done
}
_poolcounter "$@"
"#;

/// Part of the zsh script for a command that runs another command after `--`.
pub const ZSH_DASHES: &str = "dashes=${words[(i)--]}
            if (( dashes < CURRENT )); then
                shift $dashes words
                (( CURRENT -= dashes ))
                _normal
                return
            fi
            ";

/// Script of fish.
pub const FISH: &str = r#"# What fish completes behind poolcounter; made by "poolcounter completions fish".
function __poolcounter_command
    set -l words (commandline -opc)
    if set -q words[2]; and not string match -q -- '-*' $words[2]
        echo $words[2]
    else
        echo serve
    end
end
# The words before the cursor of another command, which is to be run. The status is 0 if it has begun and 1 if it may begin
# here. The arguments are "last" if the first word that is no option begins it, and the options that have a value.
function __poolcounter_other
    set -l words (commandline -opc)
    set -e words[1..2]
    while set -q words[1]
        if test "$words[1]" = --
            set -q words[2]; and string join \n -- $words[2..-1]
            return 0
        else if contains -- "$words[1]" $argv[2..-1]
            set -q words[2]; or return 2
            set -e words[1]
        else if test $argv[1] = last; and not string match -q -- '-*' "$words[1]"
            string join \n -- $words
            return 0
        end
        set -e words[1]
    end
    test $argv[1] = last; and return 1
    return 2
end
function __poolcounter_complete_other
    set -l words (string escape -- (__poolcounter_other $argv))
    complete -C (string join ' ' -- $words (commandline -ct))
end
# Whether so many words without an option stand before the cursor, behind the command, and the first is the second argument.
# The others are options that have a value.
function __poolcounter_at
    set -l words (commandline -opc)
    set -e words[1..2]
    set -g __poolcounter_rest
    while set -q words[1]
        if contains -- "$words[1]" $argv[3..-1]
            set -q words[2]; or return 1
            set -e words[1]
        else if not string match -q -- '-*' "$words[1]"
            set -a __poolcounter_rest "$words[1]"
        end
        set -e words[1]
    end
    test (count $__poolcounter_rest) = $argv[1]; or return 1
    test -z "$argv[2]"; or string match -q -i -- "$argv[2]" "$__poolcounter_rest[1]"
end
function __poolcounter_names
    set -l words (commandline -opc)
    set -l servers
    for at in (seq (count $words))
        contains -- "$words[$at]" -s --server; and set -a servers $words[(math $at + 1)]
    end
    set -q servers[1]; and set -lx POOLCOUNTER_SERVERS (string join , $servers)
    command -q poolcounter; and poolcounter completions $argv 2>/dev/null
end
complete -c poolcounterd -w poolcounter
complete -c poolcounter -f
"#;
