//! Debian's kernel in a virtual machine: Linux drivers as oracles, whatever kernel the host has.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{require, temp_dir, workspace_root};

/// Host programs that the guest needs.
const PROGRAMS: &[&str] = &["qemu-system-x86_64", "busybox", "cpio", "modprobe"];

/// A run of a shell script in a guest. The images become its read-only block devices `/dev/vda`,
/// `/dev/vdb` and so on.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    images: Vec<PathBuf>,
    options: Vec<OsString>,
}

impl Guest {
    pub fn new() -> Self {
        Self::default()
    }

    /// Attaches an image as the next disk. Returns the device's path in the guest.
    pub fn attach(&mut self, image: &Path) -> String {
        let letter = u8::try_from(self.images.len()).ok().filter(|&n| n < 26);
        let letter = char::from(b'a' + letter.expect("at most 26 images"));
        self.images.push(image.to_path_buf());
        format!("/dev/vd{letter}")
    }

    /// Loads a kernel module and its dependencies.
    pub fn module(&mut self, name: &str) -> &mut Self {
        self.options.extend(["--mod".into(), name.into()]);
        self
    }

    /// Attaches a writable disk of `len` bytes after the images: `$OUT` in the script.
    pub fn out(&mut self, path: &Path, len: u64) -> &mut Self {
        let file = std::fs::File::create(path).expect("the guest's disk is made");
        file.set_len(len).expect("the guest's disk has its length");
        self.options.extend(["--out".into(), path.into()]);
        self
    }

    /// Attaches a writable image: `$DISK` in the script. The guest's writes go to the file.
    pub fn disk(&mut self, path: &Path) -> &mut Self {
        self.options.extend(["--disk".into(), path.into()]);
        self
    }

    /// Records the writes to `$DISK`, in the format of [`log_writes`](crate::powercut::log_writes).
    pub fn log_writes(&mut self, path: &Path) -> &mut Self {
        self.options.extend(["--log-writes".into(), path.into()]);
        self
    }

    /// Boots, runs `script` with busybox's shell and powers off. Returns the status of the script,
    /// or `None` if this machine lacks something.
    pub fn run(&self, script: &str) -> Option<Output> {
        if !available() {
            return None;
        }
        let dir = temp_dir("guest");
        let path = dir.path().join("script");
        std::fs::write(&path, script).expect("the script is written");
        let output = Command::new("bash")
            .arg(workspace_root().join("tools/guest-run.sh"))
            .args(&self.options)
            .arg("--")
            .args(&self.images)
            .arg(&path)
            .output()
            .expect("bash starts");
        Some(output)
    }
}

pub fn available() -> bool {
    PROGRAMS.iter().all(|name| require::program(name).is_some())
        && require::that(
            has_kernel(),
            "a kernel for the guest (`cargo xtask guest-kernel` unpacks one)",
        )
}

/// Returns the directory below cargo's target directory into which `cargo xtask guest-kernel`
/// unpacks the guest's kernel.
pub fn kernel_root() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| "target".into());
    workspace_root().join(target).join("guest")
}

/// Returns whether there is a kernel that the guest can boot: an unpacked one, or one in `/boot`.
pub fn has_kernel() -> bool {
    [kernel_root().join("boot"), "/boot".into()]
        .iter()
        .any(|dir| has_kernel_in(dir))
}

fn has_kernel_in(boot: &Path) -> bool {
    let Ok(boot) = std::fs::read_dir(boot) else {
        return false;
    };
    boot.flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"))
}
