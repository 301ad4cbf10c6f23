//! Identifies the AppImage and prepares the program's environment.

use std::env;
use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::failure::Failure;

/// Variable that names another AppImage to run, for a runtime in a separate file.
const TARGET: &str = "TARGET_APPIMAGE";

pub struct Identity {
    /// Canonical path, without links.
    pub path: PathBuf,
    /// Path by which the runtime's processes open the file.
    pub opened: PathBuf,
    /// The name by which the user started it.
    pub argv0: OsString,
    /// Environment variables for the portable directories beside the file.
    portable: Vec<(&'static str, PathBuf)>,
}

impl Identity {
    /// Finds the AppImage: the file in `TARGET_APPIMAGE`, otherwise this program's own file.
    pub fn find() -> Result<Self, Failure> {
        let argv0 = env::args_os().next().unwrap_or_default();
        if let Some(target) = env::var_os(TARGET).filter(|target| !target.is_empty()) {
            let path = Path::new(&target).canonicalize().map_err(|error| {
                let what = format!("{TARGET}={}", Path::new(&target).display());
                Failure::io(&what, &error)
            })?;
            let opened = path.clone();
            return Ok(Self {
                path,
                opened,
                argv0,
                portable: Vec::new(),
            });
        }
        let opened = PathBuf::from("/proc/self/exe");
        let path = std::fs::read_link(&opened)
            .map_err(|error| Failure::io("finding this program in /proc", &error))?;
        Ok(Self {
            path,
            opened,
            argv0,
            portable: Vec::new(),
        })
    }

    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the path of a directory beside the file: the file's path with `suffix`.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    /// Creates a portable directory beside the file and returns its path. Fails if the path exists
    /// and is not a directory of this user.
    pub fn make_portable(&self, portable: Portable) -> Result<PathBuf, Failure> {
        let path = self.beside(portable.suffix());
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Failure::io(&format!("making {}", path.display()), &error));
            }
            _ => {}
        }
        let what = match portable_at(&path) {
            Found::Usable => return Ok(path),
            Found::OfAnother => "belongs to another user",
            Found::Nothing => "is no directory",
        };
        Err(Failure::new(format!("{} {what}", path.display())))
    }

    /// Creates the command that runs `AppRun` in `directory`, with the environment that AppImages
    /// expect.
    pub fn program(&self, directory: &Path, arguments: &[OsString]) -> Command {
        let mut command = Command::new(directory.join("AppRun"));
        command
            .args(arguments)
            .env("APPIMAGE", &self.path)
            .env("APPDIR", directory)
            .env("ARGV0", &self.argv0)
            // If the program starts another AppImage, that one must not run this file.
            .env_remove(TARGET);
        if let Ok(here) = env::current_dir() {
            command.env("OWD", here);
        }
        command.envs(self.portable.iter().cloned());
        command
    }

    /// Finds the portable directories beside the file. This must happen before a user namespace
    /// hides their owners.
    pub fn find_portable(&mut self) {
        for portable in [Portable::Home, Portable::Config] {
            let path = self.beside(portable.suffix());
            match portable_at(&path) {
                Found::Usable => self.portable.push((portable.variable(), path)),
                Found::OfAnother => crate::say(&format!(
                    "{} belongs to another user, and is not used",
                    path.display()
                )),
                Found::Nothing => {}
            }
        }
    }
}

enum Found {
    Usable,
    /// A directory of another user, who could plant files that programs read or execute; or a link
    /// to one.
    OfAnother,
    Nothing,
}

fn portable_at(path: &Path) -> Found {
    let is_own = |metadata: &Metadata| metadata.uid() == geteuid().as_raw();
    match (path.symlink_metadata(), path.metadata()) {
        (Ok(named), Ok(found)) if found.is_dir() => {
            if is_own(&named) && is_own(&found) {
                Found::Usable
            } else {
                Found::OfAnother
            }
        }
        _ => Found::Nothing,
    }
}

/// A directory beside an AppImage that replaces one of the user's, so that file and data can be
/// moved together.
#[derive(Clone, Copy, Debug)]
pub enum Portable {
    Home,
    Config,
}

impl Portable {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Home => ".home",
            Self::Config => ".config",
        }
    }

    const fn variable(self) -> &'static str {
        match self {
            Self::Home => "HOME",
            Self::Config => "XDG_CONFIG_HOME",
        }
    }
}
