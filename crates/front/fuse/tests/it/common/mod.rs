//! Shared test helpers: self-cleaning mountpoints, and images.

pub mod exfat;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use forerun_engine::{EngineOptions, Reader};
use forerun_fuse::{Mount, MountOptions, UmountOptions, mount_reader, umount};
use forerun_io::{Limits, ReadAt};
use forerun_sys::mount_table::{MountEntry, mounts};
use forerun_testkit::{MemImage, TempDir, children, opened, require, temp_dir};
use forerun_vfs::FileSystem;
use rustix::io::Errno;

/// A directory to mount on. Dropping it detaches everything mounted below it.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let dir = temp_dir(name);
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Self { dir }
    }

    /// Returns the directory itself, for images and other files.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub fn mnt(&self) -> PathBuf {
        self.dir().join("mnt")
    }

    pub fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.dir(), open).unwrap();
    }

    /// Gives the directory and its mountpoint to an unprivileged user.
    pub fn give_away(&self) {
        self.open_to_all();
        for path in [self.dir(), self.mnt()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Ok(path) = self.dir.path().canonicalize() else {
            return;
        };
        let left: Vec<MountEntry> = mounts().unwrap_or_default();
        for entry in left
            .iter()
            .filter(|entry| entry.mount_point.starts_with(&path))
        {
            let options = UmountOptions {
                lazy: true,
                force: true,
            };
            if let Err(error) = umount(&entry.mount_point, options) {
                eprintln!("{}: {error}", entry.mount_point.display());
            }
        }
    }
}

pub const NOBODY: u32 = 65534;

pub fn as_nobody(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program);
    command
}

/// Returns whether root can mount here; skips the test otherwise.
pub fn can_mount() -> bool {
    require::root() && require::fuse()
}

pub fn reader(fs: Arc<dyn FileSystem>, source: Arc<dyn ReadAt>, options: &EngineOptions) -> Reader {
    opened::reader_on(fs, source, options.clone(), Limits::default())
}

pub fn mount_memory(image: &MemImage, place: &Place, options: &str) -> Mount {
    let options = MountOptions::parse(options).unwrap();
    let source = Arc::new(image.source.clone());
    let engine = options.open_options().engine;
    let reader = reader(image.driver(), source, &engine);
    mount_reader(reader, &place.mnt(), &options).unwrap()
}

pub fn romfs(dir: &Path, image: &Path, options: &[&str]) -> bool {
    forerun_testkit::genromfs(dir, image, options)
}

/// Runs a command. Returns whether it succeeded, and all its output.
pub fn run(command: &mut Command) -> (bool, String) {
    let output = children::output(command).expect("it starts");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

/// Returns whether anything is mounted at exactly this path.
pub fn is_mounted(path: &Path) -> bool {
    mounts()
        .unwrap()
        .iter()
        .any(|entry| entry.mount_point == path)
}

/// Repeats a check that fails if another process drops the machine's caches meanwhile. A real
/// defect fails every time.
pub fn undisturbed(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut complaints = Vec::new();
    for _ in 0..5 {
        match attempt() {
            Ok(()) => return,
            Err(complaint) => complaints.push(complaint),
        }
    }
    panic!("five times over:\n{}", complaints.join("\n"));
}

pub fn ensure(holds: bool, complaint: impl std::fmt::Display) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(complaint.to_string())
    }
}

/// Checks that a system call failed with this errno.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: std::io::Result<T>, expected: Errno) {
    let error = result.expect_err("what must be refused");
    assert_eq!(Errno::from_io_error(&error), Some(expected), "{error}");
}
