//! Finds the processes that hold locks on a file, in `/proc/locks`.
//!
//! That file lists all locks of this PID namespace; processes of other namespaces are not visible.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest process name in messages.
const NAME: usize = 32;

/// How a process uses the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process holds a shared lock.
    Read,
    /// The process holds the exclusive lock.
    Write,
}

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// How the process uses the volume.
    pub kind: Kind,
    /// The process id.
    pub pid: u32,
    /// The user id, if the process still exists.
    pub user: Option<u32>,
    /// The process name, with the subcommand if it is a forerun process; empty if the process no
    /// longer exists.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user {
            Some(user) => write!(f, "{} (pid {}, user {user})", self.name, self.pid),
            None => write!(f, "a process that pid {} started", self.pid),
        }
    }
}

/// Number of attempts to find a lock in `/proc/locks` before its process counts as invisible. The
/// kernel returns a page at a time and counts the lines again for the next one, so if any lock ends
/// meanwhile, another line may be skipped.
const READINGS: usize = 4;

/// Returns the visible processes that hold a flock(2) lock on the file.
pub fn of(file: &File) -> Vec<Holder> {
    let Ok(metadata) = file.metadata() else {
        return Vec::new();
    };
    let read = || fs::read_to_string("/proc/locks").unwrap_or_default();
    search(read, |locks| on(&metadata, locks))
}

/// Reads up to [`READINGS`] times. Returns the first result that is not empty.
fn search(read: impl FnMut() -> String, find: impl Fn(&str) -> Vec<Holder>) -> Vec<Holder> {
    let readings = std::iter::repeat_with(read).take(READINGS);
    let mut found = readings.map(|locks| find(&locks));
    found.find(|found| !found.is_empty()).unwrap_or_default()
}

/// Finds the holders of locks on a file in the text of `/proc/locks`.
fn on(metadata: &Metadata, locks: &str) -> Vec<Holder> {
    let device = metadata.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let on_inode = |line: &Line| line.inode == metadata.ino();
    let lines: Vec<_> = locks.lines().filter_map(parse).filter(on_inode).collect();
    let mut same: Vec<_> = lines.iter().filter(|line| line.device == device).collect();
    if same.is_empty() {
        // Filesystems with subvolumes or layers report another device number for files than
        // `/proc/locks` does.
        same = lines.iter().filter(|line| line.device.0 == 0).collect();
    }
    let mut found: Vec<Holder> = Vec::new();
    for line in same {
        let (user, name) = process(line.pid).unzip();
        let holder = Holder {
            kind: line.kind,
            pid: line.pid,
            user,
            name: name.unwrap_or_default(),
        };
        if !found.contains(&holder) {
            found.push(holder);
        }
    }
    found
}

/// A line of `/proc/locks`.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    kind: Kind,
    pid: u32,
    device: (u32, u32),
    inode: u64,
}

/// Parses a line such as `1: FLOCK  ADVISORY  WRITE 17157 fe:00:6195051 0 EOF`. Ignores other kinds
/// of locks, and processes that wait for one (`1: -> FLOCK ...`).
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace().skip(1);
    let (class, _mode, kind) = (words.next()?, words.next()?, words.next()?);
    if class != "FLOCK" {
        return None;
    }
    let kind = match kind {
        "READ" => Kind::Read,
        _ => Kind::Write,
    };
    let pid = words.next()?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let mut hex = || u32::from_str_radix(place.next()?, 16).ok();
    let device = (hex()?, hex()?);
    let inode = place.next()?.parse().ok()?;
    Some(Line {
        kind,
        pid,
        device,
        inode,
    })
}

fn process(pid: u32) -> Option<(u32, String)> {
    let dir = format!("/proc/{pid}");
    let status = fs::read_to_string(format!("{dir}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // The ids are real, effective, saved and filesystem.
    let user = ids.split_whitespace().nth(1)?.parse().ok()?;
    let arguments = fs::read(format!("{dir}/cmdline")).unwrap_or_default();
    let name = name(&arguments).or_else(|| {
        let name = fs::read_to_string(format!("{dir}/comm")).ok()?;
        Some(name.trim_end().to_string())
    });
    Some((user, name.unwrap_or_default()))
}

/// Returns `forerun mount` and the like, or the name of another program.
fn name(arguments: &[u8]) -> Option<String> {
    let mut words = arguments.split(|&byte| byte == 0);
    let program = words.next()?;
    // The title of a process that serves a mount or a run. It ends with a path.
    if program.starts_with(b"forerun: ") {
        let serves = words.next()?.starts_with(b"__serve");
        return Some(if serves { "forerun mount" } else { "forerun" }.to_owned());
    }
    let program = Path::new(OsStr::from_bytes(program)).file_name()?;
    let program = program.to_str()?;
    let command = words.next().filter(|word| {
        let is_word = word.iter().all(u8::is_ascii_lowercase);
        program == "forerun" && is_word && !word.is_empty()
    });
    let command = command.and_then(|word| std::str::from_utf8(word).ok());
    let name = command.map_or_else(
        || program.to_string(),
        |command| format!("{program} {command}"),
    );
    Some(name.chars().take(NAME).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_one_reading_lacks_is_found_in_the_next() {
        let holder = Holder {
            kind: Kind::Write,
            pid: 7,
            user: Some(0),
            name: "forerun mount".into(),
        };
        let find = |text: &str| match text {
            "with it" => vec![holder.clone()],
            _ => Vec::new(),
        };
        let mut texts = ["without it", "with it", "not read"].into_iter();
        let read = || texts.next().unwrap().to_string();
        assert_eq!(search(read, find), std::slice::from_ref(&holder));
        assert_eq!(texts.next(), Some("not read"));
        let mut readings = 0;
        let none = search(
            || {
                readings += 1;
                String::new()
            },
            find,
        );
        assert_eq!((none, readings), (Vec::new(), READINGS));
    }

    #[test]
    fn lines() {
        let line = "1: FLOCK  ADVISORY  WRITE 17157 fe:0a:6195051 0 EOF";
        let expected = Line {
            kind: Kind::Write,
            pid: 17157,
            device: (254, 10),
            inode: 6_195_051,
        };
        assert_eq!(parse(line), Some(expected));
        for other in [
            "2: OFDLCK ADVISORY  READ -1 fe:00:1 0 EOF",
            "2: POSIX  ADVISORY  READ 7 fe:00:1 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 5 fe:00:1 0 EOF",
            "3: FLOCK  ADVISORY",
            "",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn names() {
        for (arguments, expected) in [
            (&b"/usr/bin/forerun\0mount\0a.img\0"[..], "forerun mount"),
            (b"forerun\0-q\0ls\0", "forerun"),
            (b"/bin/cat\0file\0", "cat"),
        ] {
            assert_eq!(name(arguments).as_deref(), Some(expected));
        }
        assert_eq!(name(b""), None);
    }
}
