# What bash completes behind poolcounter; made by "poolcounter completions bash".
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
