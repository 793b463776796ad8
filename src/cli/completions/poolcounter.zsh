#compdef poolcounter poolcounterd
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
