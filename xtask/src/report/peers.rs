//! The programs that forerun is compared with: where they are taken from, and how new they are.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use forerun_measure::process::collect;
use serde::{Deserialize, Serialize};

/// Projects, the newest release of each that is known, and their programs with the arguments that may have
/// one print its version.
const PROJECTS: &[(&str, &str, &[Program])] = &[
    (
        "squashfs-tools",
        "4.7.6",
        &[("mksquashfs", &["-version"]), ("unsquashfs", &["-version"])],
    ),
    ("squashfuse", "0.6.2", &[("squashfuse_ll", &["--help"])]),
    (
        "erofs-utils",
        "1.9.3",
        &[
            ("mkfs.erofs", &["-V"]),
            ("fsck.erofs", &["-V"]),
            ("erofsfuse", &["-V", "--help"]),
        ],
    ),
    ("composefs", "1.0.8", &[("mount.composefs", &["--version"])]),
    ("nydus", "2.4.4", &[("nydusd", &["--version"])]),
    ("exfat-fuse", "1.4.0", &[("mount.exfat-fuse", &["-V"])]),
    (
        "exfatprogs",
        "1.4.2",
        &[("mkfs.exfat", &["-V"]), ("fsck.exfat", &["-V"])],
    ),
];

type Program = (&'static str, &'static [&'static str]);

/// A program, and how new it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerVersion {
    /// The name of the program.
    pub program: String,
    /// The project that it is of.
    pub project: String,
    /// Its version; nothing where it is not installed or prints none.
    pub version: Option<String>,
    /// The newest release of the project that is known.
    pub newest: String,
    /// Whether it is older than that.
    pub is_older: bool,
}

impl PeerVersion {
    fn new(program: &str, project: &str, newest: &str, version: Option<String>) -> Self {
        let is_older = version
            .as_deref()
            .is_some_and(|version| numbers(version) < numbers(newest));
        Self {
            program: program.to_string(),
            project: project.to_string(),
            version,
            newest: newest.to_string(),
            is_older,
        }
    }

    /// Describes it for people.
    pub fn text(&self) -> String {
        let Some(version) = &self.version else {
            return format!("{}: not installed, or prints no version", self.program);
        };
        let age = match self.is_older {
            true => format!(", older than {}", self.newest),
            false => String::new(),
        };
        format!("{} {version}{age}", self.program)
    }
}

/// Asks all programs for their versions.
pub fn look() -> Vec<PeerVersion> {
    let mut all = Vec::new();
    for (project, newest, programs) in PROJECTS {
        for (program, arguments) in *programs {
            let mut said = arguments.iter().filter_map(|word| ask(program, word));
            all.push(PeerVersion::new(program, project, newest, said.next()));
        }
    }
    all
}

/// Returns the version in what a program prints, whatever its status: some fail when asked for it.
fn ask(program: &str, argument: &str) -> Option<String> {
    let mut command = Command::new(program);
    let output = collect(command.arg(argument).stdin(Stdio::null())).ok()?;
    let text = [output.stderr, output.stdout].concat();
    String::from_utf8_lossy(&text).lines().find_map(version_in)
}

/// Finds the first word of a line that has numbers with a dot between them.
fn version_in(line: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let first = parts.next().unwrap_or_default();
        let second = parts.next().unwrap_or_default();
        !first.is_empty()
            && first.bytes().all(|byte| byte.is_ascii_digit())
            && second.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut words = line.split([' ', '\t', '(', ')', ',']);
    let word = words.find(|word| is_version(&word.trim_start_matches('v')))?;
    Some(word.trim_start_matches('v').to_string())
}

/// Returns the numbers of a version, up to the first part that is none.
fn numbers(version: &str) -> Vec<u64> {
    let plain = version.split(|c: char| !c.is_ascii_digit() && c != '.');
    let plain = plain.take(1).flat_map(|part| part.split('.'));
    plain.map_while(|part| part.parse().ok()).collect()
}

/// Starts this program anew with the programs of a directory before those of the system, unless it was started
/// so. All that is measured is found by `PATH`, which a running process cannot change without `unsafe`.
pub fn put_first(dir: &Path) -> Result<()> {
    let dir = dir
        .canonicalize()
        .with_context(|| dir.display().to_string())?;
    let old = env::var_os("PATH").unwrap_or_default();
    let Some(new) = path_with(&dir, &old)? else {
        return Ok(());
    };
    let mut again = Command::new(env::current_exe()?);
    let error = again.args(env::args_os().skip(1)).env("PATH", new).exec();
    Err(anyhow!(error).context("starting anew with the programs of --peers"))
}

/// Returns a `PATH` with a directory, and the `bin` and `sbin` in it, before all others; nothing where it
/// begins so.
fn path_with(dir: &Path, path: &OsStr) -> Result<Option<OsString>> {
    let first = [dir.to_path_buf(), dir.join("bin"), dir.join("sbin")];
    let all: Vec<PathBuf> = env::split_paths(path).collect();
    if all.starts_with(&first) {
        return Ok(None);
    }
    Ok(Some(env::join_paths(first.into_iter().chain(all))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_and_compared() {
        for (line, version) in [
            ("mksquashfs version 4.5.1 (2022/03/17)", Some("4.5.1")),
            ("mkfs.erofs (erofs-utils) 1.9.3", Some("1.9.3")),
            ("fsck.erofs 1.5", Some("1.5")),
            ("exfatprogs version : 1.2.0", Some("1.2.0")),
            ("FUSE exfat 1.3.0+git20220115", Some("1.3.0+git20220115")),
            ("squashfuse v0.6.2, by", Some("0.6.2")),
            ("mkfs.erofs: invalid option -- 'V'", None),
        ] {
            assert_eq!(version_in(line).as_deref(), version, "{line}");
        }
        let is_older = |version: &str, newest: &str| {
            PeerVersion::new("x", "y", newest, Some(version.to_string())).is_older
        };
        assert!(is_older("4.5.1", "4.7.6") && is_older("1.5", "1.9.3"));
        assert!(is_older("1.3.0+git20220115", "1.4.0") && is_older("1.9", "1.10"));
        assert!(!is_older("4.7.6", "4.7.6") && !is_older("1.10.1", "1.9.3"));
        assert!(!PeerVersion::new("x", "y", "1.0", None).is_older);
        let old = PeerVersion::new("x", "y", "1.4.0", Some("1.3.0".to_string()));
        assert_eq!(old.text(), "x 1.3.0, older than 1.4.0");
    }

    #[test]
    fn a_directory_goes_first_once() {
        let dir = Path::new("/peers");
        let new = path_with(dir, OsStr::new("/usr/bin:/bin"))
            .unwrap()
            .unwrap();
        assert_eq!(new, "/peers:/peers/bin:/peers/sbin:/usr/bin:/bin");
        assert_eq!(path_with(dir, &new).unwrap(), None);
    }
}
