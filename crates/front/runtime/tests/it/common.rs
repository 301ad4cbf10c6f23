//! AppImages to run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forerun_testkit::{TempDir, require, temp_dir};
use rustix::fs::{XattrFlags, setxattr};

/// The program under test.
pub const RUNTIME: &str = env!("CARGO_BIN_EXE_forerun-runtime");

/// The ways to mount, and whether root mounts or a user without any right.
pub const WAYS: [(&str, bool); 4] = [
    ("direct", true),
    ("namespace", true),
    ("namespace", false),
    ("fusermount", false),
];

/// `AppRun`, which does as its first argument says.
const PROGRAM: &str = r#"#!/bin/sh
case "$1" in
  status) exit "$2" ;;
  kill) kill -"$2" $$ ;;
  print) shift; printf '%s\n' "$@" ;;
  env) printf '%s\n' "$APPIMAGE" "$APPDIR" "$ARGV0" "$OWD" "$HOME" "$XDG_CONFIG_HOME" "$(pwd)" ;;
  sum) md5sum < "$APPDIR/usr/bin/blob" ;;
  owner) id -u; stat -c %u "$APPDIR/usr" ;;
  wait) echo "$APPDIR"; exec sleep 1000 ;;
  leave) sh -c 'read line < "$1"; md5sum < "$APPDIR/usr/bin/blob" > "$1.sum"' sh "$2" > /dev/null 2>&1 & ;;
esac
"#;

/// The value of extended attributes in the tree: a capability, as the kernel wants it where the name is that.
pub const ATTRIBUTE: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// An AppImage and the tree in it, in a directory where nothing else makes files.
pub struct Fixture {
    pub temp: TempDir,
    pub image: PathBuf,
    pub tree: PathBuf,
}

impl Fixture {
    /// Makes an AppImage with an image that mksquashfs has compressed; nothing without the programs.
    pub fn new(compressor: &str) -> Option<Self> {
        let mksquashfs = require::program("mksquashfs")?;
        if !require::root() || !require::fuse_for_users() {
            return None;
        }
        let temp = temp_dir("appimage");
        let at = |name: &str| temp.path().join(name);
        // Other users run it, too, and make their directories here.
        for (dir, mode) in [(temp.path().to_path_buf(), 0o755), (at("tmp"), 0o1777)] {
            fs::create_dir_all(&dir).unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        }
        let tree = at("tree");
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::create_dir_all(tree.join("usr/empty")).unwrap();
        fs::write(tree.join("AppRun"), PROGRAM).unwrap();
        fs::write(tree.join("usr/bin/blob"), blob()).unwrap();
        fs::write(tree.join("usr/bin/zeros"), vec![0; 700_000]).unwrap();
        fs::write(tree.join("x.desktop"), "[Desktop Entry]\n").unwrap();
        fs::hard_link(tree.join("x.desktop"), tree.join("same")).unwrap();
        symlink("usr/bin/blob", tree.join("link")).unwrap();
        for (name, mode) in [("AppRun", 0o755), ("usr/empty", 0o555)] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (name, attribute) in [
            ("x.desktop", "user.origin"),
            ("usr/empty", "user.origin"),
            ("AppRun", "security.capability"),
        ] {
            setxattr(tree.join(name), attribute, &ATTRIBUTE, XattrFlags::empty()).unwrap();
        }
        let payload = at("payload");
        let made = Command::new(mksquashfs)
            .args([&tree, &payload])
            .args(["-comp", compressor, "-noappend", "-quiet", "-no-progress"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let image = at("Some App-x86_64.AppImage");
        write_image(&image, &payload);
        Some(Self { temp, image, tree })
    }

    /// Creates a command that runs the AppImage, by root or by a user without any right.
    pub fn command(&self, is_root: bool) -> Command {
        self.command_of(&self.image, is_root)
    }

    /// Creates a command that runs a program beside the AppImage.
    pub fn command_of(&self, program: &Path, is_root: bool) -> Command {
        let mut command = if is_root {
            Command::new(program)
        } else {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.arg(program);
            command
        };
        command
            .current_dir(self.temp.path())
            .env("TMPDIR", self.temp.path().join("tmp"))
            .env_remove("APPIMAGE_EXTRACT_AND_RUN");
        command
    }

    /// Returns whether nothing of a run is left: no directory, no mount.
    pub fn is_clean(&self) -> bool {
        let left = fs::read_dir(self.temp.path().join("tmp")).unwrap().count();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        left == 0 && !mounts.contains(self.temp.path().to_str().unwrap())
    }

    /// Fails if something of a run stays.
    pub fn becomes_clean(&self, what: &str) {
        forerun_testkit::eventually(what, || self.is_clean());
    }
}

/// Makes an AppImage of the runtime and the file with a payload. Another process writes it: a program that a test
/// beside this one starts would inherit the open file, and a file that is open for writing cannot be run.
pub fn write_image(path: &Path, payload: &Path) {
    let status = Command::new("sh")
        .args([
            "-c",
            "cat \"$0\" \"$1\" > \"$2\" && chmod 755 \"$2\"",
            RUNTIME,
        ])
        .args([payload, path])
        .status();
    assert!(status.unwrap().success());
}

/// Returns bytes of several blocks that compress a little.
pub fn blob() -> Vec<u8> {
    (0..1_500_000_u32)
        .map(|n| (n.wrapping_mul(n / 700) >> 7).to_le_bytes()[0])
        .collect()
}

/// Returns standard output as text.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns standard error as text.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
