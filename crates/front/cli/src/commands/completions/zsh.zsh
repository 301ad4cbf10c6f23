# Completes a path in an image, or a file where the words before it name none.
_forerun_paths() {
    local -a found directories files words_before
    words_before=("${(@Q)forerun_words[2,-2]}")
    if ! found=("${(@f)$("${(Q)forerun_words[1]}" __complete -- "${words_before[@]}" "${(Q)PREFIX}" 2> /dev/null)}"); then
        _default
        return
    fi
    directories=(${(M)found:#*/})
    files=(${found:#*/})
    compadd -S '' -a directories
    compadd -a files
}

