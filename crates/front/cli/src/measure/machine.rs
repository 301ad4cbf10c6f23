//! The machine of a measurement.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Model of the CPU; empty if the kernel does not name one.
    pub cpu: String,
    pub cpus: usize,
    pub kernel: String,
    pub memory: u64,
    /// Vulnerabilities of the CPU that the kernel mitigates at a cost, and their mitigations.
    pub mitigations: Vec<(String, String)>,
}

const FLAWS: &str = "/sys/devices/system/cpu/vulnerabilities";

impl Machine {
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = rustix::system::sysinfo();
        Self {
            cpu: cpu_model(&read("/proc/cpuinfo")),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            memory: info.totalram.saturating_mul(info.mem_unit.into()),
            mitigations: mitigations(Path::new(FLAWS)),
        }
    }

    pub fn text(&self) -> String {
        let cpu = match self.cpu.as_str() {
            "" => String::new(),
            cpu => format!(" of {cpu}"),
        };
        let mitigated: Vec<&str> = self
            .mitigations
            .iter()
            .map(|(flaw, _)| flaw.as_str())
            .collect();
        let mitigated = if mitigated.is_empty() {
            "no mitigations".to_string()
        } else {
            format!("mitigations: {}", mitigated.join(" "))
        };
        format!(
            "Linux {}, {} CPUs{cpu}, {} MiB of memory; {mitigated}",
            self.kernel,
            self.cpus,
            self.memory >> 20,
        )
    }

    pub fn json(&self) -> Value {
        let mitigations: serde_json::Map<_, _> = self
            .mitigations
            .iter()
            .map(|(flaw, how)| (flaw.clone(), how.as_str().into()))
            .collect();
        json!({
            "cpu": self.cpu,
            "cpus": self.cpus,
            "kernel": self.kernel,
            "memory": self.memory,
            "mitigations": mitigations,
        })
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let model =
        fields.find(|(name, _)| matches!(name.trim(), "model name" | "Model" | "cpu model"));
    model.map_or_else(String::new, |(_, model)| model.trim().to_string())
}

/// Reads the directory in which the kernel has a file per vulnerability. Skips vulnerabilities that
/// do not affect the CPU or are not mitigated.
fn mitigations(dir: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let how = text.trim().strip_prefix("Mitigation:")?.trim().to_string();
            Some((entry.file_name().into_string().ok()?, how))
        })
        .collect();
    found.sort();
    found
}

/// Returns the type and source of the filesystem of a file, from the mount table. Returns `None`
/// for a device, or if the table does not list the filesystem.
pub fn filesystem_of(path: &Path) -> Option<(String, String)> {
    let metadata = path.metadata().ok()?;
    if !metadata.is_file() && !metadata.is_dir() {
        return None;
    }
    let device = metadata.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = forerun_sys::mount_table::mounts().ok()?;
    let entry = mounts.into_iter().find(|entry| entry.device == device);
    // A btrfs subvolume has a device number of its own, while the mount table has another one for
    // all of them.
    let entry = entry?;
    Some((entry.fstype, entry.source.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_where_there_is_one() {
        let x86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2 GHz\nflags : a\n";
        assert_eq!(cpu_model(x86), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model("processor : 0\nBogoMIPS : 50\n"), "");
    }

    #[test]
    fn only_what_costs_time_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("spectre_v2", "Mitigation: Retpolines; IBPB\n"),
            ("meltdown", "Not affected\n"),
            ("mds", "Vulnerable\n"),
            ("l1tf", "Mitigation: PTE Inversion\n"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let found = mitigations(dir.path());
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["l1tf", "spectre_v2"]);
        assert_eq!(found[1].1, "Retpolines; IBPB");
        assert!(mitigations(Path::new("/nowhere")).is_empty());
    }
}
