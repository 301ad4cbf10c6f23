//! `--layer`: several images as one tree.
//!
//! Commands take the image as their first operand. With `--layer` there is no image, and the
//! operands that follow are the command's others. So the first layer is inserted as the image, and
//! the parser needs no second grammar.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::args::is_stdin;
use crate::error::{Failure, Result};
use crate::remote;

const OPTION: &str = "--layer";

/// Returns the command line with the lowest layer as the image of its command. `knows` tells
/// whether a command has the option.
pub fn with_image(argv: &[OsString], knows: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    let mut words = argv.to_vec();
    // Options before the command have no values.
    let is_command = |word: &&OsString| !word.as_bytes().starts_with(b"-");
    let command = argv.iter().skip(1).position(|word| is_command(&word));
    let Some(command) = command.map(|position| position + 1) else {
        return words;
    };
    let rest = argv.get(command + 1..).unwrap_or_default();
    let lowest = lowest(rest).filter(|_| argv.get(command).is_some_and(|word| knows(word)));
    if let Some(lowest) = lowest {
        words.insert(command + 1, lowest);
    }
    words
}

/// Returns the value of the first `--layer`, in a form that is not mistaken for an option.
fn lowest(words: &[OsString]) -> Option<OsString> {
    let mut words = words.iter().take_while(|word| *word != "--");
    let value = loop {
        let word = words.next()?.as_bytes();
        match word.strip_prefix(OPTION.as_bytes()) {
            Some(b"") => break words.next()?.as_bytes(),
            Some([b'=', value @ ..]) => break value,
            Some(_) | None => {}
        }
    };
    let is_option = value.len() > 1 && value.starts_with(b"-");
    let prefix: &[u8] = if is_option { b"./" } else { b"" };
    Some(OsString::from_vec([prefix, value].concat()))
}

/// Returns the name of a stack of layers in messages: the uppermost layer, and what is below it.
pub fn shown(layers: &[PathBuf]) -> String {
    let name = |layer: &Path| {
        if is_stdin(layer) {
            "standard input".to_string()
        } else {
            remote::shown(layer)
        }
    };
    match layers {
        [] => String::new(),
        [single] => name(single),
        [low, up] => format!("{} over {}", name(up), name(low)),
        [lower @ .., top] => format!("{} over {} layers", name(top), lower.len()),
    }
}

/// Refuses layers for a command that works on a single image.
pub fn refuse(layers: &[PathBuf], what: &str) -> Result<()> {
    match layers {
        [] => Ok(()),
        _ => Err(Failure::usage(format!(
            "{OPTION} cannot be used for {what}, which takes one image"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_layer_takes_the_place_of_the_image() {
        for (line, expected) in [
            (
                "forerun mount --layer a --layer b dir",
                "forerun mount a --layer a --layer b dir",
            ),
            (
                "forerun -q --json ls -l --layer=a /x",
                "forerun -q --json ls a -l --layer=a /x",
            ),
            ("forerun cat --layer - /x", "forerun cat - --layer - /x"),
            ("forerun ls --layer=-a", "forerun ls ./-a --layer=-a"),
            // No layers, or no command that knows the option.
            ("forerun ls a --layers", "forerun ls a --layers"),
            ("forerun ls --layer", "forerun ls --layer"),
            ("forerun pack --layer a", "forerun pack --layer a"),
            ("forerun --layer a", "forerun --layer a"),
            (
                "forerun mount img dir -- ls --layer a",
                "forerun mount img dir -- ls --layer a",
            ),
            ("forerun", "forerun"),
        ] {
            let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let words = with_image(&argv, |word| word != "pack");
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(words.join(" "), expected);
        }
    }

    #[test]
    fn a_stack_has_a_short_name() {
        for (layers, expected) in [
            (&["a"][..], "a"),
            (&["a", "b"], "b over a"),
            (&["a", "-"], "standard input over a"),
            (
                &["a", "b", "https://u:p@host/c?token=d"],
                "https://host/c over 2 layers",
            ),
        ] {
            let layers: Vec<PathBuf> = layers.iter().map(PathBuf::from).collect();
            assert_eq!(shown(&layers), expected);
        }
    }
}
