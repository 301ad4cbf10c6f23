//! Other program names: the same command line, run by forerun and by the program with the name.

mod apptainer;
mod composefs;
mod erofs;
mod exfat;
mod mksquashfs;
mod squashfuse;
mod unsquashfs;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use forerun_testkit::{TempDir, require, temp_dir};

use crate::common::{Ran, command, ran};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// forerun under the name of the other program.
    Forerun,
    Other,
}

pub const BOTH: [By; 2] = [By::Other, By::Forerun];

/// A directory with links to forerun in `bin`, and an image `a.sqsh` of the directory `tree`.
pub struct Names {
    pub dir: TempDir,
}

impl Names {
    /// Creates the directory. Returns `None` if one of the other programs or mksquashfs is missing.
    pub fn new(names: &[&str]) -> Option<Self> {
        let mut needed = names.iter().chain(&["mksquashfs"]);
        if !needed.all(|name| require::program(name).is_some()) {
            return None;
        }
        let dir = temp_dir("names");
        let this = Self { dir };
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(this.dir.path(), open).unwrap();
        fs::create_dir(this.path("bin")).unwrap();
        let forerun = command(&["--version"]);
        for name in names {
            symlink(forerun.get_program(), this.path("bin").join(name)).unwrap();
        }
        this.plant();
        this.tool(&[
            "mksquashfs",
            "tree",
            "a.sqsh",
            "-noappend",
            "-quiet",
            "-no-progress",
        ]);
        Some(this)
    }

    /// Creates the tree, with each kind of file that a user can make.
    fn plant(&self) {
        let tree = self.path("tree");
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::create_dir_all(tree.join("etc/empty")).unwrap();
        fs::write(tree.join("etc/passwd"), "root:x:0:0\n").unwrap();
        fs::write(tree.join("etc/.hidden"), "hidden\n").unwrap();
        fs::write(tree.join("usr/bin/tool"), vec![b'x'; 300_000]).unwrap();
        fs::set_permissions(
            tree.join("usr/bin/tool"),
            fs::Permissions::from_mode(0o4750),
        )
        .unwrap();
        fs::hard_link(tree.join("usr/bin/tool"), tree.join("usr/bin/tool2")).unwrap();
        symlink("usr/bin/tool", tree.join("AppRun")).unwrap();
        symlink("nowhere", tree.join("dangling")).unwrap();
        fs::write(tree.join("app.desktop"), "[Desktop Entry]\n").unwrap();
        self.tool(&["mkfifo", "-m", "640", "tree/fifo"]);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    #[track_caller]
    pub fn tool(&self, line: &[&str]) {
        let (program, args) = line.split_first().unwrap();
        let mut tool = Command::new(program);
        let output = tool
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line:?}: {told}");
    }

    /// Returns a command line of one of the two programs, in the directory `at`.
    pub fn command(&self, by: By, at: &str, line: &[&str]) -> Command {
        let (program, args) = line.split_first().unwrap();
        let mut command = match by {
            By::Forerun => Command::new(self.path("bin").join(program)),
            By::Other => {
                let mut other = Command::new(require::program(program).unwrap());
                other.arg0(program);
                other
            }
        };
        command
            .args(args)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .current_dir(self.path(at));
        command
    }

    pub fn run(&self, by: By, at: &str, line: &[&str]) -> Ran {
        ran(self.output(by, at, line))
    }

    fn output(&self, by: By, at: &str, line: &[&str]) -> Output {
        self.command(by, at, line).output().unwrap()
    }
}

pub fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(&format!(" {} ", dir.display()))
}
