//! Requirements of a test on its machine.
//!
//! A test that needs root, a program or FUSE asks here first, and returns if it may not continue.
//! On a developer's machine that prints a visible line; in CI, where `CI` is set in the
//! environment, it fails, because a skipped test would look like one that passed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

pub use forerun_sys::programs::find_program;
use std::process::Command;

#[must_use]
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

#[must_use]
pub fn root() -> bool {
    rustix::process::geteuid().is_root() || missing("root")
}

#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let found = find_program(name);
    if found.is_none() {
        missing(&format!("the program {name}"));
    }
    found
}

/// Returns whether root can mount FUSE filesystems: `/dev/fuse` opens.
#[must_use]
pub fn fuse() -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.is_ok() || missing("/dev/fuse")
}

/// Returns whether users can mount FUSE filesystems: every user may open `/dev/fuse`, and
/// fusermount3 exists.
#[must_use]
pub fn fusermount() -> bool {
    fuse_for_users() && program("fusermount3").is_some()
}

/// Returns whether every user may open `/dev/fuse`, as on a machine where udev made it.
#[must_use]
pub fn fuse_for_users() -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_open = |metadata: std::fs::Metadata| metadata.permissions().mode() & 0o006 == 0o006;
    let device = Path::new("/dev/fuse");
    fuse()
        && (device.metadata().is_ok_and(is_open)
            || missing("/dev/fuse for every user (mode 666; as root, `make test` brings one)"))
}

/// Returns whether the kernel has a driver for this filesystem type. Loads the module if there is
/// one.
#[must_use]
pub fn kernel_filesystem(name: &str) -> bool {
    let known = || {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.split_whitespace().any(|word| word == name)
    };
    let load = || Command::new("modprobe").arg(name).status().is_ok();
    known() || (load() && known()) || missing(&format!("{name} in the kernel"))
}

/// Returns whether an option of the kernel's configuration, such as `CONFIG_XZ_DEC_ARM`, is set, or
/// `None` if the configuration cannot be read.
#[must_use]
pub fn kernel_option(name: &str) -> Option<bool> {
    let release = rustix::system::uname().release().to_str().ok()?.to_owned();
    let packed = Command::new("zcat").arg("/proc/config.gz").output().ok();
    let packed = packed.filter(|output| output.status.success());
    let text = match packed {
        Some(output) => String::from_utf8(output.stdout).ok()?,
        None => std::fs::read_to_string(format!("/boot/config-{release}")).ok()?,
    };
    let is_set = |line: &str| {
        let value = line.strip_prefix(name)?.strip_prefix('=')?;
        Some(matches!(value, "y" | "m"))
    };
    Some(text.lines().find_map(is_set).unwrap_or(false))
}

/// Returns whether a condition that the test checked itself holds. `what` names it.
#[must_use]
pub fn that(holds: bool, what: &str) -> bool {
    holds || missing(what)
}

fn missing(what: &str) -> bool {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(!in_ci(), "{test} needs {what}, and CI may not skip it");
    // eprintln output is shown by the test harness only if the test fails.
    let _best_effort = writeln!(std::io::stderr(), "{SKIP}{test}: this machine lacks {what}");
    false
}

const SKIP: &str = "SKIP: ";

/// Returns the skipped test and the reason that a line reports.
#[must_use]
pub fn skipped(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix(SKIP)?.split_once(": ")
}
