//! Suggestions for misspelled words.
//!
//! clap compares the letters that two words share, so it suggests very different words. Here, a
//! suggestion changes at most a third of the letters.

use strsim::damerau_levenshtein;

/// Returns the known word that was probably meant: the one with the smallest edit distance, or one
/// that starts with `word`.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let close = known.filter_map(|other| {
        let distance = damerau_levenshtein(word, other);
        let longer = word.len().max(other.len());
        let begins = word.len() >= 3 && other.starts_with(word);
        (begins || distance <= (longer / 3).max(1) && distance < word.len())
            .then_some((distance, other))
    });
    close.min().map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_are_close_are_suggested() {
        let known = ["max-depth", "record", "options", "help", "include", "ro"];
        for (word, expected) in [
            ("badopt", None),
            ("directory", None),
            ("hepl", Some("help")),
            ("option", Some("options")),
            ("inc", Some("include")),
            ("max_depth", Some("max-depth")),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known.into_iter()), expected, "{word}");
        }
    }
}
