
# Prints the paths in an image with which the command line may go on. Fails where another word is meant.
function __forerun_paths
    set -l words (commandline -opc)
    set -q words[3]; or return 1
    command $words[1] __complete -- $words[2..-1] (string unescape -- (commandline -ct)) 2> /dev/null
end

complete -c forerun -n "__forerun_paths > /dev/null" -f -k -a "(__forerun_paths)"
