# What fish completes behind poolcounter; made by "poolcounter completions fish".
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
