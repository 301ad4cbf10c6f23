
# Prints the words of the command line up to the cursor, one on a line, without quotes and backslashes.
# Bash splits words at = and :, which are put together again.
_forerun_words() {
    local word line="" joined=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        word=${word//[\\\"\']/}
        if [[ "$word" == [=:] ]]; then
            line+=$word joined=1
        elif [[ "$joined" ]]; then
            line+=$word joined=""
        else
            [[ "$line" ]] && printf '%s\n' "$line"
            line=$word
        fi
    done
    printf '%s\n' "$line"
}

# Completes a path in an image. Fails where the word at the cursor is none.
_forerun_paths() {
    local cur="${COMP_WORDS[COMP_CWORD]}" path skip
    local -a words=() found=()
    (( COMP_CWORD > 2 )) && [[ "$cur" != -* ]] || return 1
    mapfile -t words < <(_forerun_words)
    words=("${words[@]/#\~\//$HOME/}")
    path=$("${COMP_WORDS[0]}" __complete -- "${words[@]}" 2> /dev/null) || return 1
    [[ "$path" ]] && mapfile -t found <<< "$path"
    # Of a word that bash has split, it replaces the part after the last = or : only.
    skip=${words[-1]%"${cur//[\\\"\']/}"}
    COMPREPLY=("${found[@]#"$skip"}")
    compopt -o filenames +o default +o bashdefault 2> /dev/null
    [[ "${#found[@]}" == 1 && "${found[0]}" == */ ]] && compopt -o nospace 2> /dev/null
    return 0
}

_forerun_more() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
    if [[ "${COMP_WORDS[1]}" == mount && ( "${prev}" == -o || "${prev}" == --options ) && "${cur}" != *= ]]; then
        local before=""
        [[ "${cur}" == *,* ]] && before="${cur%,*},"
        COMPREPLY=( $(compgen -P "${before}" -W "@OPTION_WORDS@" -- "${cur##*,}") )
        compopt -o nospace 2> /dev/null
        return 0
    fi
    _forerun_paths || _forerun "$@"
}
complete -F _forerun_more -o bashdefault -o default forerun
