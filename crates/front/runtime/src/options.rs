//! The runtime's options. They must come first; everything else belongs to the program.

use std::env;
use std::ffi::{OsStr, OsString};

use crate::failure::Failure;
use crate::identity::Portable;

pub const HELP: &str = "\
Options of the AppImage runtime; all other options go to the program in the AppImage:

  --appimage-extract [PATTERN]       extract the files, or those that match PATTERN, into squashfs-root
  --appimage-extract-and-run [ARGS]  extract into a temporary directory, run, and remove it
  --appimage-mount                   mount, print the directory, and unmount on Ctrl-C
  --appimage-offset                  print the offset of the image in the file
  --appimage-portable-home           make a directory beside the AppImage that is HOME when it runs
  --appimage-portable-config         make a directory beside it that is XDG_CONFIG_HOME when it runs
  --appimage-signature               print the signature in the AppImage
  --appimage-updateinformation       print where updates come from
  --appimage-version                 print the version of the runtime
  --appimage-help                    print this text

In a PATTERN, * and ? stand for letters but /, and [...] for one of some. A directory stands for all below it.

Environment: APPIMAGE_EXTRACT_AND_RUN=1 is as --appimage-extract-and-run, and NO_CLEANUP=1 keeps the files;
TARGET_APPIMAGE=FILE uses the image in FILE; TMPDIR is where directories are made; FORERUN_RUNTIME_WAYS are the
ways to mount that are tried, of direct, namespace and fusermount.

Exit status: that of the program; 125 if the runtime fails, 126 if AppRun cannot be run, 127 if there is none.
";

#[derive(Debug)]
pub enum Action {
    Run(Vec<OsString>),
    ExtractAndRun(Vec<OsString>),
    Extract(Option<OsString>),
    Mount,
    Offset,
    MakePortable(Portable),
    /// Print an ELF section; the first name that exists.
    Section(&'static [&'static str]),
    Version,
    Help,
}

impl Action {
    /// Parses the arguments after the program name. Fails on unknown options with the runtime's
    /// prefix and on surplus arguments.
    pub fn parse(mut arguments: Vec<OsString>) -> Result<Self, Failure> {
        let first = arguments.first().and_then(|first| first.to_str());
        let Some(option) = first.and_then(|first| first.strip_prefix("--appimage-")) else {
            return Ok(if is_set("APPIMAGE_EXTRACT_AND_RUN") {
                Self::ExtractAndRun(arguments)
            } else {
                Self::Run(arguments)
            });
        };
        let option = option.to_string();
        let rest = arguments.split_off(1);
        let most = match option.as_str() {
            "extract-and-run" => return Ok(Self::ExtractAndRun(rest)),
            "extract" => 1,
            _ => 0,
        };
        let action = match option.as_str() {
            "extract" => Self::Extract(rest.first().cloned()),
            "mount" => Self::Mount,
            "offset" => Self::Offset,
            "portable-home" => Self::MakePortable(Portable::Home),
            "portable-config" => Self::MakePortable(Portable::Config),
            "signature" => Self::Section(&[".sha256_sig", ".sig_key"]),
            "updateinformation" | "updateinfo" => Self::Section(&[".upd_info"]),
            "version" => Self::Version,
            "help" => Self::Help,
            _ => {
                return Err(Failure::new(format!(
                    "no such option: --appimage-{option}; --appimage-help lists them"
                )));
            }
        };
        match rest.get(most) {
            None => Ok(action),
            Some(word) => Err(Failure::new(format!(
                "--appimage-{option} does not take {}",
                word.display()
            ))),
        }
    }
}

/// Returns whether a variable is set and neither empty nor `0`.
pub fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != OsStr::new("0"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(words: &[&str]) -> Result<String, String> {
        let words = words.iter().map(OsString::from).collect();
        let action = Action::parse(words);
        action
            .map(|action| format!("{action:?}"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_word_decides() {
        for (words, expected) in [
            (&[][..], "Run([])"),
            (
                &["-v", "--appimage-help"],
                r#"Run(["-v", "--appimage-help"])"#,
            ),
            (&["--appimage-extract"], "Extract(None)"),
            (
                &["--appimage-extract", "usr/*"],
                r#"Extract(Some("usr/*"))"#,
            ),
            (
                &["--appimage-extract-and-run", "--appimage-help"],
                r#"ExtractAndRun(["--appimage-help"])"#,
            ),
            (&["--appimage-offset"], "Offset"),
        ] {
            assert_eq!(parse(words).unwrap(), expected);
        }
        for (words, expected) in [
            (
                &["--appimage-exract"][..],
                "no such option: --appimage-exract; --appimage-help lists them",
            ),
            (
                &["--appimage-offset", "x"],
                "--appimage-offset does not take x",
            ),
            (
                &["--appimage-extract", "a", "b"],
                "--appimage-extract does not take b",
            ),
        ] {
            assert_eq!(parse(words).unwrap_err(), expected);
        }
    }
}
