//! Suggestions for words that the user has misspelled.
//!
//! The suggestions of clap go by the letters that two words share, so `--badopt` had `--max-depth`
//! suggested. Here a suggestion is at most a third of its letters away.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Returns the known word that was probably meant: the one with the fewest letters to change, or one that
/// begins with `word`.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let close = known.filter_map(|other| {
        let distance = distance(word, other);
        let longer = word.len().max(other.len());
        let begins = word.len() >= 3 && other.starts_with(word);
        (begins || distance <= (longer / 3).max(1) && distance < word.len())
            .then_some((distance, other))
    });
    close.min().map(|(_, other)| other)
}

/// Counts the letters to insert, remove, replace, or swap with the next one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (row, &x) in a.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, &y) in b.iter().enumerate() {
            let at =
                |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX);
            let replaced = at(&above, column) + usize::from(x != y);
            let changed = at(&above, column + 1).min(at(&line, column)) + 1;
            let previous = column.checked_sub(1).and_then(|at| b.get(at));
            let above_it = row.checked_sub(1).and_then(|at| a.get(at));
            let swapped = match previous == Some(&x) && above_it == Some(&y) {
                true => at(&before, column - 1) + 1,
                false => usize::MAX,
            };
            line.push(replaced.min(changed).min(swapped));
        }
        before = std::mem::replace(&mut above, line);
    }
    above.last().copied().unwrap_or(0)
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
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("help", "hepl", 1),
            ("long", "longg", 1),
            ("recursive", "recursiv", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

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
