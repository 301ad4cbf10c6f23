//! Which AppImage this is, and what the program learns about it.

use std::env;
use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::failure::Failure;

/// Names another AppImage whose image is used. For a runtime that is a file of its own.
const TARGET: &str = "TARGET_APPIMAGE";

/// An AppImage, as the user named it.
pub struct Identity {
    /// The file, without links on the way.
    pub path: PathBuf,
    /// The path by which processes of the runtime open it.
    pub opened: PathBuf,
    /// The name by which the user started it.
    pub argv0: OsString,
    /// Variables that name directories beside the file.
    portable: Vec<(&'static str, PathBuf)>,
}

impl Identity {
    /// Finds the file: the one that `TARGET_APPIMAGE` names, or that of this program.
    ///
    /// # Errors
    /// A name that leads to no file; a system without `/proc`.
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

    /// Returns the file's name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the path of a directory beside the file that belongs to it.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    /// Makes a directory beside the file for the program's own files. Returns its path.
    ///
    /// # Errors
    /// The errors of mkdir(2), unless it is there; that what is there is no directory of the user.
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

    /// Creates the command that runs `AppRun` of the directory with what the program expects in its environment.
    pub fn program(&self, directory: &Path, arguments: &[OsString]) -> Command {
        let mut command = Command::new(directory.join("AppRun"));
        command
            .args(arguments)
            .env("APPIMAGE", &self.path)
            .env("APPDIR", directory)
            .env("ARGV0", &self.argv0)
            // An AppImage that the program starts is another one.
            .env_remove(TARGET);
        if let Ok(here) = env::current_dir() {
            command.env("OWD", here);
        }
        command.envs(self.portable.iter().cloned());
        command
    }

    /// Finds the directories beside the file that belong to it. A user namespace, which mounting may lead to, would hide
    /// whose they are.
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

/// What is found where a directory beside an AppImage can be.
enum Found {
    Usable,
    /// A directory of another user, who could have put there what programs read or run, or a link that this one made.
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

/// A directory beside an AppImage that replaces one of the user's, so that both can be carried together.
#[derive(Clone, Copy, Debug)]
pub enum Portable {
    /// `HOME`.
    Home,
    /// `XDG_CONFIG_HOME`.
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
