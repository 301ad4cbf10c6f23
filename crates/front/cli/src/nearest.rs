//! Suggestions for words that the user has misspelled.
//!
//! The suggestions of clap go by the letters that two words share, so it suggests words that are far apart.
//! Here a suggestion is at most a third of its letters away.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
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

/// Replaces the suggestions of an error about an unknown option. `argv` is the command line.
pub fn suggest(mut error: Error, mut command: Command, argv: &[String]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg).cloned() else {
        return error;
    };
    let Some(word) = given.strip_prefix("--") else {
        return error;
    };
    command.build();
    let mut current = command;
    for word in argv.iter().skip(1) {
        if let Some(next) = current.find_subcommand(word).cloned() {
            current = next;
        }
    }
    let options = current.get_arguments().filter(|arg| !arg.is_hide_set());
    let names: Vec<_> = options.filter_map(clap::Arg::get_long).collect();
    let found = nearest(word, names.into_iter()).map(|name| format!("--{name}"));
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    if let Some(found) = found {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(found));
    }
    let usage = current.render_usage();
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    error
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
