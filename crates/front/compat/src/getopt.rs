//! Command lines of programs that use getopt_long(3): short options in groups, long ones with one or two words,
//! operands anywhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Value,
    /// Behind `=` or, of a short option, in the same word.
    Perhaps,
}

/// The names of an option: a short one or `\0`, and a long one or an empty text.
pub type OptNames = (char, &'static str, Takes);

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The index in the table.
    pub index: usize,
    pub value: Option<OsString>,
}

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
pub enum NotFollowed {
    /// The usage is asked for.
    Help,
    Version,
    /// The message, to be shown with the usage.
    Mistake(String),
}

/// A command line, split up.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub options: Vec<Given>,
    pub operands: Vec<OsString>,
}

/// Splits the words after the program's name. The error is the message of getopt, without the name.
pub fn split(words: &[OsString], table: &[OptNames]) -> Result<Split, String> {
    let mut split = Split::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => split.operands.extend(words.by_ref().cloned()),
            [b'-', b'-', long @ ..] => split.options.push(one_long(long, &mut words, table)?),
            [b'-', short @ ..] if !short.is_empty() => {
                several_short(short, &mut words, table, &mut split.options)?;
            }
            _ => split.operands.push(word.clone()),
        }
    }
    Ok(split)
}

type ArgIter<'w> = std::slice::Iter<'w, OsString>;

fn one_long(word: &[u8], words: &mut ArgIter<'_>, table: &[OptNames]) -> Result<Given, String> {
    let (name, value) = match word.iter().position(|byte| *byte == b'=') {
        Some(at) => (word.get(..at).unwrap_or(word), word.get(at + 1..)),
        None => (word, None),
    };
    let shown = String::from_utf8_lossy(name);
    let exact = |entry: &(usize, &OptNames)| entry.1.1.as_bytes() == name;
    let begins = |entry: &(usize, &OptNames)| entry.1.1.as_bytes().starts_with(name);
    let (index, (_, full, takes)) = match table.iter().enumerate().find(exact) {
        Some(found) => found,
        None => {
            let mut found = table.iter().enumerate().filter(begins);
            match (found.next(), found.next()) {
                (Some(one), None) if !name.is_empty() => one,
                (Some(_), Some(_)) => return Err(format!("option '--{shown}' is ambiguous")),
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(format!("unrecognized option '--{word}'"));
                }
            }
        }
    };
    let value = value.map(|value| OsStr::from_bytes(value).to_os_string());
    let value = match (takes, value) {
        (Takes::Nothing, Some(_)) => {
            return Err(format!("option '--{full}' doesn't allow an argument"));
        }
        (Takes::Value, None) => match words.next() {
            Some(next) => Some(next.clone()),
            None => return Err(format!("option '--{full}' requires an argument")),
        },
        (_, value) => value,
    };
    Ok(Given { index, value })
}

fn several_short(
    word: &[u8],
    words: &mut ArgIter<'_>,
    table: &[OptNames],
    options: &mut Vec<Given>,
) -> Result<(), String> {
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let letter = char::from(*byte);
        let known = |entry: &(usize, &OptNames)| entry.1.0 == letter && letter != '\0';
        let Some((index, (_, _, takes))) = table.iter().enumerate().find(known) else {
            return Err(format!("invalid option -- '{letter}'"));
        };
        let in_word = (!rest.is_empty()).then(|| OsStr::from_bytes(rest).to_os_string());
        let value = match (takes, in_word) {
            (Takes::Nothing, _) => {
                options.push(Given { index, value: None });
                continue;
            }
            (Takes::Value, None) => match words.next() {
                Some(next) => Some(next.clone()),
                None => return Err(format!("option requires an argument -- '{letter}'")),
            },
            (_, value) => value,
        };
        options.push(Given { index, value });
        return Ok(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[OptNames] = &[
        ('a', "all", Takes::Nothing),
        ('v', "value", Takes::Value),
        ('p', "", Takes::Perhaps),
        ('\0', "perhaps", Takes::Perhaps),
        ('\0', "alloc", Takes::Nothing),
    ];

    type Told = (Vec<(usize, Option<String>)>, Vec<String>);

    fn told(line: &[&str]) -> Result<Told, String> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        let text = |word: OsString| word.into_string().unwrap();
        let split = split(&words, TABLE)?;
        let options = split.options.into_iter();
        let options = options.map(|given| (given.index, given.value.map(text)));
        Ok((
            options.collect(),
            split.operands.into_iter().map(text).collect(),
        ))
    }

    #[test]
    fn options_in_all_spellings() {
        let value = |text: &str| Some(text.to_string());
        for (line, expected) in [
            (
                &["-a", "x", "-v", "1"][..],
                vec![(0, None), (1, value("1"))],
            ),
            (&["-av1", "x"], vec![(0, None), (1, value("1"))]),
            (&["x", "--value=1"], vec![(1, value("1"))]),
            (&["--val", "1", "x"], vec![(1, value("1"))]),
            (&["-p", "x", "-p2"], vec![(2, None), (2, value("2"))]),
            (
                &["--perhaps", "x", "--perhaps=a=b"],
                vec![(3, None), (3, value("a=b"))],
            ),
        ] {
            assert_eq!(
                told(line).unwrap(),
                (expected, vec!["x".to_string()]),
                "{line:?}"
            );
        }
        let (options, operands) = told(&["--", "-a", "-"]).unwrap();
        assert!(options.is_empty() && operands == ["-a", "-"]);
    }

    #[test]
    fn mistakes_have_the_words_of_getopt() {
        for (line, expected) in [
            (&["-x"][..], "invalid option -- 'x'"),
            (&["--x=1"], "unrecognized option '--x=1'"),
            (&["--al"], "option '--al' is ambiguous"),
            (&["--all=1"], "option '--all' doesn't allow an argument"),
            (&["-v"], "option requires an argument -- 'v'"),
            (&["--value"], "option '--value' requires an argument"),
        ] {
            assert_eq!(told(line).unwrap_err(), expected, "{line:?}");
        }
    }
}
