//! Volumes made by mkfs.exfat and mounted by the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use forerun_testkit::{TempDir, eventually, require, temp_dir};

use super::{Ran, command, ran};

/// A volume `card.img` of 16 MiB made by mkfs.exfat, and a directory to mount it on. Unmounted when
/// dropped.
pub struct Volume {
    pub dir: TempDir,
}

impl Volume {
    /// Creates a volume. Returns `None` without the programs, root or FUSE.
    pub fn new(name: &str) -> Option<Self> {
        let tools = ["mkfs.exfat", "fsck.exfat"].map(require::program);
        if !require::root() || !require::fuse() || tools.contains(&None) {
            return None;
        }
        let dir = temp_dir(name);
        let volume = Self { dir };
        fs::create_dir(volume.mnt()).unwrap();
        let file = fs::File::create(volume.image()).unwrap();
        file.set_len(16 << 20).unwrap();
        volume.tool("mkfs.exfat", &[]);
        Some(volume)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.path("card.img")
    }

    pub fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    #[track_caller]
    pub fn tool(&self, program: &str, options: &[&str]) {
        let mut tool = Command::new(program);
        let output = tool.args(options).arg(self.image()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{program}: {text}");
    }

    /// Makes the directory readable for all users.
    pub fn open_to_all(&self) {
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.dir.path(), open).unwrap();
    }

    /// Runs the command with the arguments `before`, the image, and `after`.
    pub fn forerun(&self, before: &[&str], after: &[&str]) -> Ran {
        let mut all = command(before);
        all.arg(self.image())
            .args(after)
            .current_dir(self.dir.path());
        ran(all.output().unwrap())
    }

    pub fn mount(&self, options: &[&str]) -> Ran {
        let (image, mnt) = (self.image(), self.mnt());
        let mut all = vec![Path::new("mount")];
        all.extend(options.iter().map(Path::new));
        all.extend([image.as_path(), mnt.as_path()]);
        ran(command(&all).output().unwrap())
    }

    /// Unmounts the volume, and checks it with fsck.exfat.
    #[track_caller]
    pub fn umount(&self) {
        unmount(&self.mnt());
        self.tool("fsck.exfat", &["-n"]);
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let mnt = self.mnt();
        let lazily = [Path::new("umount"), Path::new("-l"), &mnt];
        let _if_it_is_mounted = command(&lazily).output();
    }
}

/// Unmounts a directory. A child of another test that has not yet reached its `exec` has copies of
/// the open files, so the mount may stay in use for a moment.
#[track_caller]
pub fn unmount(dir: &Path) {
    eventually("the mount can be taken down", || {
        let tried = ran(command(&[Path::new("umount"), dir]).output().unwrap());
        let is_in_use = tried.code == Some(7) && tried.stderr.contains("is in use");
        if !is_in_use {
            tried.ok();
        }
        !is_in_use
    });
}

/// Returns a command that runs a program as an unprivileged user.
pub fn as_nobody(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    setpriv.arg(program);
    setpriv
}

/// A tmpfs of 8 MiB on a directory. Unmounted when dropped.
pub struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    pub fn on(dir: &'a Path) -> Self {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8M", "none"])
            .arg(dir)
            .status();
        assert!(mount.unwrap().success());
        Self(dir)
    }

    pub fn resize(&self, size: &str) {
        let mount = Command::new("mount")
            .args(["-o", &format!("remount,size={size}")])
            .arg(self.0)
            .status();
        assert!(mount.unwrap().success());
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
