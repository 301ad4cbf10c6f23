//! The machine and the programs of a measurement: kernel, the configuration of its drivers, versions.

use std::fs;
use std::process::Command;

use forerun_measure::machine::Machine;
use forerun_measure::programs::first_line;
use serde_json::{Value, json};

/// Facts about the machine.
pub struct Host {
    /// The machine.
    pub machine: Machine,
    /// The options of the kernel's drivers, and where they were found.
    pub drivers: Vec<(Driver, Option<Configuration>)>,
    /// Names and versions of the programs.
    pub programs: Vec<(&'static str, String)>,
}

/// Where options were found, and those that are set.
pub type Configuration = (String, Vec<String>);

/// A driver of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// For people.
    pub name: &'static str,
    /// The prefix of the names of its options.
    pub prefix: &'static str,
}

impl Host {
    /// Looks for these drivers' options, and for the versions of programs, each asked with an
    /// argument of its own.
    pub fn look(
        forerun: &std::path::Path,
        drivers: &[Driver],
        programs: &[(&'static str, &str)],
    ) -> Self {
        let version = first_line(Command::new(forerun).arg("--version"));
        let others = programs
            .iter()
            .map(|&(name, argument)| (name, first_line(Command::new(name).arg(argument))));
        let machine = Machine::look();
        Self {
            drivers: drivers
                .iter()
                .map(|driver| (*driver, configuration(&machine.kernel, driver.prefix)))
                .collect(),
            machine,
            programs: std::iter::once(("forerun", version))
                .chain(others)
                .collect(),
        }
    }

    /// Returns the most memory that reading or extracting may take: the default budget and 100 MiB.
    pub fn memory_bound(&self) -> u64 {
        (self.machine.memory / 8).min(256 << 20) + (100 << 20)
    }

    /// Describes the machine for people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine.text());
        for (Driver { name, .. }, found) in &self.drivers {
            text += &match found {
                Some((from, options)) => format!("{name} in {from}: {}\n", options.join(" ")),
                None => format!("{name}: the kernel's configuration is not to be found\n"),
            };
        }
        for (name, version) in &self.programs {
            text += &format!("{name}: {version}\n");
        }
        text
    }

    /// Describes the machine for programs.
    pub fn json(&self) -> Value {
        let programs: serde_json::Map<_, _> = self
            .programs
            .iter()
            .map(|(name, version)| ((*name).to_string(), version.as_str().into()))
            .collect();
        let mut json = self.machine.json();
        json["programs"] = programs.into();
        for (driver, found) in &self.drivers {
            let key = format!("{}_configuration", driver.name.to_lowercase());
            json[key] = json!(found.as_ref().map(|(_, options)| options));
        }
        json
    }
}

fn configuration(kernel: &str, prefix: &str) -> Option<Configuration> {
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
    Some((from, options(&text, prefix)))
}

/// Parses a kernel configuration: `DECOMP_SINGLE` of `CONFIG_SQUASHFS_DECOMP_SINGLE=y`, `NAME=VALUE` of
/// other values.
fn options(text: &str, prefix: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix(prefix))
        .map(|option| option.strip_suffix("=y").unwrap_or(option).to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_set() {
        let text = "CONFIG_SQUASHFS=y\n# CONFIG_SQUASHFS_LZO is not set\n\
                    CONFIG_SQUASHFS_XZ=y\nCONFIG_SQUASHFS_FRAGMENT_CACHE_SIZE=3\nCONFIG_X=y\n";
        let options = options(text, "CONFIG_SQUASHFS_");
        assert_eq!(options, ["XZ", "FRAGMENT_CACHE_SIZE=3"]);
    }
}
