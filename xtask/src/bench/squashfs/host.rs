//! What it was measured on and against: kernel, its SQUASHFS configuration, versions.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

/// Facts about the machine.
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Its SQUASHFS options, and where they were found.
    pub squashfs: Option<(String, Vec<String>)>,
    /// Names and versions of the programs.
    pub programs: Vec<(&'static str, String)>,
    /// CPUs that can be used.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory: u64,
}

impl Host {
    /// Looks.
    pub fn look(forerun: &std::path::Path) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = kernel.trim().to_string();
        let info = rustix::system::sysinfo();
        Self {
            squashfs: configuration(&kernel),
            kernel,
            programs: vec![
                (
                    "forerun",
                    first_line(Command::new(forerun).arg("--version")),
                ),
                (
                    "squashfuse_ll",
                    first_line(Command::new("squashfuse_ll").arg("--help")),
                ),
                (
                    "unsquashfs",
                    first_line(Command::new("unsquashfs").arg("-version")),
                ),
                (
                    "mksquashfs",
                    first_line(Command::new("mksquashfs").arg("-version")),
                ),
            ],
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: info.totalram.saturating_mul(info.mem_unit.into()),
        }
    }

    /// The most memory that reading or extracting may take: the default budget and 100 MiB.
    pub fn memory_bound(&self) -> u64 {
        (self.memory / 8).min(256 << 20) + (100 << 20)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Linux {}, {} CPUs, {} MiB of memory\n",
            self.kernel,
            self.cpus,
            self.memory >> 20
        );
        match &self.squashfs {
            Some((from, options)) => {
                text += &format!("SQUASHFS in {from}: {}\n", options.join(" "));
            }
            None => text += "SQUASHFS: the kernel's configuration is not to be found\n",
        }
        for (name, version) in &self.programs {
            text += &format!("{name}: {version}\n");
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let programs: serde_json::Map<_, _> = self
            .programs
            .iter()
            .map(|(name, version)| ((*name).to_string(), version.as_str().into()))
            .collect();
        json!({
            "kernel": self.kernel,
            "squashfs_configuration": self.squashfs.as_ref().map(|(_, options)| options),
            "programs": programs,
            "cpus": self.cpus,
            "memory": self.memory,
        })
    }
}

fn configuration(kernel: &str) -> Option<(String, Vec<String>)> {
    let boot = format!("/boot/config-{kernel}");
    let from_proc = Command::new("zcat").arg("/proc/config.gz").output();
    let from_proc = from_proc.ok().filter(|output| output.status.success());
    let (from, text) = match from_proc {
        Some(output) => (
            "/proc/config.gz".to_string(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        ),
        None => (boot.clone(), fs::read_to_string(boot).ok()?),
    };
    Some((from, options(&text)))
}

/// `DECOMP_SINGLE` of `CONFIG_SQUASHFS_DECOMP_SINGLE=y`, `NAME=VALUE` of other values.
fn options(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("CONFIG_SQUASHFS_"))
        .map(|option| option.strip_suffix("=y").unwrap_or(option).to_string())
        .collect()
}

/// What a program says first, whatever its status: some call a question for the version a failure.
fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else {
        return "not installed".to_string();
    };
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty()).unwrap_or("no version");
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_set() {
        let text = "CONFIG_SQUASHFS=y\n# CONFIG_SQUASHFS_LZO is not set\n\
                    CONFIG_SQUASHFS_XZ=y\nCONFIG_SQUASHFS_FRAGMENT_CACHE_SIZE=3\nCONFIG_X=y\n";
        assert_eq!(options(text), ["XZ", "FRAGMENT_CACHE_SIZE=3"]);
    }
}
