//! Suggestions for words that the user has misspelled.
//!
//! The suggestions of clap go by the letters that two words share, so it suggests words that are far apart.
//! Here a suggestion is at most a third of its letters away.

use strsim::damerau_levenshtein;

/// Returns the known word that was probably meant: the one with the fewest letters to change, or one that
/// begins with `word`.
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
