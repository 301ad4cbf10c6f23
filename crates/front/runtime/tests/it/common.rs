//! AppImages for the tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forerun_testkit::{TempDir, require, temp_dir};
use rustix::fs::{XattrFlags, setxattr};

pub const RUNTIME: &str = env!("CARGO_BIN_EXE_forerun-runtime");

/// Mount methods, and whether to run them as root or as an unprivileged user.
pub const WAYS: [(&str, bool); 4] = [
    ("direct", true),
    ("namespace", true),
    ("namespace", false),
    ("fusermount", false),
];

/// An `AppRun` that does what its first argument says.
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

/// Value for extended attributes; also a valid `security.capability`.
pub const ATTRIBUTE: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// An AppImage, its source tree, and a directory for the runtime's temporary files.
pub struct Fixture {
    pub temp: TempDir,
    pub image: PathBuf,
    pub tree: PathBuf,
}

impl Fixture {
    /// Builds an AppImage with mksquashfs; `None` if a program is missing.
    pub fn new(compressor: &str) -> Option<Self> {
        let mksquashfs = require::program("mksquashfs")?;
        if !require::root() || !require::fuse_for_users() {
            return None;
        }
        let temp = temp_dir("appimage");
        let at = |name: &str| temp.path().join(name);
        // Other users run the AppImage too and create directories here.
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

    pub fn command(&self, is_root: bool) -> Command {
        self.command_of(&self.image, is_root)
    }

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

    /// Returns whether no directory and no mount of a run remains.
    pub fn is_clean(&self) -> bool {
        let left = fs::read_dir(self.temp.path().join("tmp")).unwrap().count();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        left == 0 && !mounts.contains(self.temp.path().to_str().unwrap())
    }

    /// Waits until nothing of a run remains; panics on timeout.
    pub fn becomes_clean(&self, what: &str) {
        forerun_testkit::eventually(what, || self.is_clean());
    }
}

/// Concatenates the runtime and a payload into an AppImage. A child process writes the file:
/// otherwise a program started by a concurrent test could inherit the writable descriptor, and
/// executing the file would fail with ETXTBSY.
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

pub fn blob() -> Vec<u8> {
    (0..1_500_000_u32)
        .map(|n| (n.wrapping_mul(n / 700) >> 7).to_le_bytes()[0])
        .collect()
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
