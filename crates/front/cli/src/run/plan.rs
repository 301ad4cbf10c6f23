//! The plan of a run: how process 1 builds the root directory, and which command it runs.
//!
//! Process 1 is this program, started again, so the plan is passed as words on its command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Failure, Result};

use super::RunArgs;

/// The word for an overlay in memory. `./tmpfs` names a directory.
const TMPFS: &str = "tmpfs";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    None,
    Memory,
    Directory(PathBuf),
}

/// A file or directory of the system that the command sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    pub from: PathBuf,
    pub to: PathBuf,
    pub read_only: bool,
}

/// The instructions for process 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// The images, for the mount table.
    pub name: String,
    pub overlay: Overlay,
    pub binds: Vec<Bind>,
    pub chdir: PathBuf,
    pub command: Vec<OsString>,
}

impl RunPlan {
    pub fn of(args: &RunArgs, name: String) -> Result<Self> {
        let overlay = match &args.overlay {
            None => Overlay::None,
            Some(dir) if dir.as_os_str() == TMPFS => Overlay::Memory,
            Some(dir) => Overlay::Directory(dir.clone()),
        };
        let binds = args.binds.iter().map(|word| Bind::parse(word));
        Ok(Self {
            name,
            overlay,
            binds: binds.collect::<Result<_>>()?,
            chdir: args.chdir.clone(),
            command: args.command.clone(),
        })
    }

    /// Returns the words that [`from_words`](Self::from_words) parses.
    pub fn words(&self) -> Vec<OsString> {
        let overlay = match &self.overlay {
            Overlay::None => "".into(),
            Overlay::Memory => TMPFS.into(),
            // Prefixed, so that a directory `tmpfs` is not taken for the word.
            Overlay::Directory(dir) => Path::new(".").join(dir).into_os_string(),
        };
        let mut words = vec![OsString::from(&self.name), overlay];
        words.push(self.chdir.clone().into());
        for bind in &self.binds {
            let access = if bind.read_only { "ro" } else { "rw" };
            words.extend([
                bind.from.clone().into(),
                bind.to.clone().into(),
                access.into(),
            ]);
        }
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }

    pub fn from_words(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = words.into_iter();
        let name = words.next()?.into_string().ok()?;
        let overlay = words.next()?;
        let overlay = match overlay.as_bytes() {
            b"" => Overlay::None,
            word if word == TMPFS.as_bytes() => Overlay::Memory,
            _ => Overlay::Directory(overlay.into()),
        };
        let chdir = words.next()?.into();
        let mut binds = Vec::new();
        loop {
            let from = words.next()?;
            if from == "--" {
                break;
            }
            binds.push(Bind {
                from: from.into(),
                to: words.next()?.into(),
                read_only: words.next()? == "ro",
            });
        }
        let command: Vec<_> = words.collect();
        (!command.is_empty()).then_some(Self {
            name,
            overlay,
            binds,
            chdir,
            command,
        })
    }
}

impl Bind {
    /// Parses `FROM`, `FROM:TO` or `FROM:TO:ro`.
    fn parse(word: &OsStr) -> Result<Self> {
        let parts = split(word, b':');
        let (from, to, access) = match parts.as_slice() {
            [from] => (from, from, None),
            [from, to] => (from, to, None),
            [from, to, access] => (from, to, access.to_str()),
            _ => return Err(Self::failure(word)),
        };
        let read_only = match (parts.len(), access) {
            (3, Some("ro")) => true,
            (3, Some("rw")) | (1 | 2, _) => false,
            _ => return Err(Self::failure(word)),
        };
        let from = PathBuf::from(from);
        if from.as_os_str().is_empty() {
            return Err(Self::failure(word));
        }
        // A word that starts with -- would end the list.
        let from = std::path::absolute(&from).map_err(|error| Failure::source(&error))?;
        let to = PathBuf::from(to);
        let climbs = to.components().any(|part| part == Component::ParentDir);
        let is_root = !to
            .components()
            .any(|part| matches!(part, Component::Normal(_)));
        if !to.is_absolute() || climbs || is_root {
            let message = "the path in the image must be absolute, below / and without ..";
            let hint = "--bind FROM:TO, as in --bind data:/data";
            return Err(Failure::usage(message).hint(hint).of(word.display()));
        }
        Ok(Self {
            from,
            to,
            read_only,
        })
    }

    fn failure(word: &OsStr) -> Failure {
        let hint = "--bind FROM:TO, or --bind FROM:TO:ro";
        let message = "is not FROM:TO";
        Failure::usage(message).hint(hint).of(word.display())
    }
}

pub fn split(word: &OsStr, separator: u8) -> Vec<OsString> {
    let parts = word.as_bytes().split(|byte| *byte == separator);
    parts
        .map(|part| OsStr::from_bytes(part).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds() {
        for (word, expected) in [
            ("/a", Some(("/a", "/a", false))),
            ("/a:/b", Some(("/a", "/b", false))),
            ("/a:/b:ro", Some(("/a", "/b", true))),
            ("/a:/b:rw", Some(("/a", "/b", false))),
            ("/a:/b:x", None),
            ("/a:b", None),
            ("/a:/b/../c", None),
            ("/a:/", None),
            (":/b", None),
            ("", None),
            ("/a:/b:ro:z", None),
        ] {
            let parsed = Bind::parse(OsStr::new(word)).ok();
            let expected = expected.map(|(from, to, read_only)| Bind {
                from: from.into(),
                to: to.into(),
                read_only,
            });
            assert_eq!(parsed, expected, "{word}");
        }
    }

    #[test]
    fn a_plan_travels_in_words() {
        let bind = |word: &str| Bind::parse(OsStr::new(word)).unwrap();
        for overlay in [
            Overlay::None,
            Overlay::Memory,
            Overlay::Directory("./tmpfs".into()),
            Overlay::Directory("/a".into()),
        ] {
            let plan = RunPlan {
                name: "a over b".into(),
                overlay,
                binds: vec![bind("/x:/y:ro"), bind("/z")],
                chdir: "/".into(),
                command: vec!["sh".into(), "--".into(), OsStr::from_bytes(b"\xff").into()],
            };
            assert_eq!(RunPlan::from_words(plan.words()), Some(plan));
        }
        assert_eq!(
            RunPlan::from_words(["a".into(), "".into(), "/".into()]),
            None
        );
    }
}
