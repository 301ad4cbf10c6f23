//! Mount methods, in the order in which they are tried.
//!
//! Root mounts directly. Other users get a user namespace, in which any user may mount; if that is
//! not permitted, fusermount mounts for them. Root gets no namespace, because an AppImage that
//! administers the machine needs the real one.

mod direct;
mod fusermount;
pub mod namespace;

use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::cleaning;
use crate::failure::Failure;
use crate::processes::{self, Way};

/// Variable with the mount methods to try, in order, separated by commas.
pub const WAYS: &str = "FORERUN_RUNTIME_WAYS";
const FSTYPE: &str = "fuse.forerun-runtime";

/// A mount of the image, visible to this process, with a running server.
pub struct Mounted {
    pub place: PathBuf,
    pub way: Way,
    /// The mount stays as long as a process has this socket open. `None` if a mount namespace keeps
    /// the mount instead.
    pub life: Option<UnixStream>,
}

/// Mounts the image on a new directory. With `visible` processes outside must see the mount. If
/// every method fails, the error has all reasons.
pub fn mount(image: &Path, name: &str, visible: bool) -> Result<Mounted, Failure> {
    let mut reasons = Vec::new();
    for way in ways(visible)? {
        let place = fresh_directory(".mount_", name)?;
        let made = match way {
            Way::Namespace => namespace::enter(image, &place, name).map(|()| None),
            Way::Direct | Way::Fusermount => attach(way, image, &place, name).map(Some),
        };
        match made {
            Ok(life) => return Ok(Mounted { place, way, life }),
            Err(error) => reasons.push(format!("{}: {error}", way.name())),
        }
        let _left_empty = std::fs::remove_dir(&place);
    }
    Err(Failure::new(reasons.join("; ")))
}

fn attach(way: Way, image: &Path, place: &Path, name: &str) -> Result<UnixStream, Failure> {
    let connection = match way {
        Way::Fusermount => fusermount::attach(place, name)?,
        Way::Direct | Way::Namespace => direct::attach(place, name)?,
    };
    let pair = UnixStream::pair().map_err(|error| Failure::io("making a socket", &error));
    let started = pair.and_then(|(ours, theirs)| {
        processes::start(image, connection, theirs, place, way)?;
        Ok(ours)
    });
    if started.is_err() {
        let _the_first_error_counts = cleaning::remove_mount(way, place);
    }
    started
}

fn ways(visible: bool) -> Result<Vec<Way>, Failure> {
    let mut chosen = Vec::new();
    match env::var(WAYS) {
        Ok(names) => {
            for name in names.split(',').filter(|name| !name.is_empty()) {
                let way = Way::ALL.iter().find(|(known, _)| *known == name);
                let Some((_, way)) = way else {
                    return Err(Failure::new(format!(
                        "{WAYS}: {name} is not one of direct, namespace and fusermount"
                    )));
                };
                chosen.push(*way);
            }
        }
        Err(_) if rustix::process::geteuid().is_root() => {
            chosen.extend([Way::Direct, Way::Namespace, Way::Fusermount]);
        }
        Err(_) => chosen.extend([Way::Namespace, Way::Fusermount]),
    }
    chosen.retain(|way| !visible || *way != Way::Namespace);
    Ok(chosen)
}

/// Creates a directory that only this user can enter, below `TMPDIR` or `/tmp`. Its name begins
/// like the AppImage's.
pub fn fresh_directory(prefix: &str, name: &str) -> Result<PathBuf, Failure> {
    let base = env::var_os("TMPDIR").map(PathBuf::from);
    let base = base.filter(|base| base.is_absolute());
    let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
    let short: String = name
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric())
        .take(6)
        .collect();
    for _ in 0..64 {
        let place = base.join(format!("{prefix}{short}{}", random_letters()?));
        match DirBuilder::new().mode(0o700).create(&place) {
            Ok(()) => return Ok(place),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let what = format!("making a directory in {}", base.display());
                return Err(Failure::io(&what, &error));
            }
        }
    }
    let what = format!("{} has no free name for a directory", base.display());
    Err(Failure::new(what))
}

fn random_letters() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bytes = [0; 6];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    filled.map_err(|error| Failure::io("choosing a name", &error.into()))?;
    let letter = |byte: &u8| LETTERS[usize::from(byte % 32)];
    Ok(bytes.iter().map(letter).map(char::from).collect())
}

/// Removes the characters that are special in mount options.
fn plain(name: &str) -> String {
    let is_plain = |letter: &char| !matches!(letter, ',' | '\\') && !letter.is_control();
    name.chars().filter(is_plain).collect()
}
