//! Programs of the system: where they are, and their versions.

use std::process::{Command, Stdio};

pub use forerun_sys::programs::find_program;

use super::process;

/// Returns the first line that a program prints, whatever its status: some fail when asked for the
/// version.
pub fn first_line(command: &mut Command) -> String {
    let Ok(output) = process::collect(command.stdin(Stdio::null())) else {
        return "not installed".to_string();
    };
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty()).unwrap_or("no version");
    line.to_string()
}

/// Returns whether the kernel has a driver, as a module perhaps.
pub fn has_filesystem(name: &str) -> bool {
    let known = || {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.split_whitespace().any(|word| word == name)
    };
    let load = || {
        let mut modprobe = Command::new("modprobe");
        modprobe.args(["--quiet", name]).stderr(Stdio::null());
        modprobe.status().is_ok_and(|status| status.success())
    };
    known() || find_program("modprobe").is_some() && load() && known()
}

/// Returns why no FUSE filesystem can be mounted by this user, if none can.
pub fn lacks_fuse() -> Option<String> {
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if device.is_err() {
        return Some("/dev/fuse cannot be opened".to_string());
    }
    let can_mount = rustix::process::geteuid().is_root() || find_program("fusermount3").is_some();
    (!can_mount).then(|| "fusermount3 is not installed".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_what_a_program_prints_first() {
        let mut echo = Command::new("sh");
        echo.args(["-c", "echo; echo ' tool 1.2 '; echo more; exit 3"]);
        assert_eq!(first_line(&mut echo), "tool 1.2");
        assert_eq!(
            first_line(&mut Command::new("/nowhere/at/all")),
            "not installed"
        );
    }
}
