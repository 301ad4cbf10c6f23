//! Separation of the guard from the filler, so that one kill does not end both.
//!
//! The two must not die together, and most kills hit many processes at once: a service manager ends a
//! unit by its cgroup, with SIGKILL in the end; the kernel may do the same when a cgroup is out of
//! memory; users kill by name. So the guard leaves the cgroups that are used for this, and has a name
//! unlike that of this program.
//!
//! All of it is an attempt: where it is not permitted, the guard works without it. It does not help
//! against the end of a PID namespace, nor against a user who kills both.

use std::path::PathBuf;

use forerun::{MountEntry, mounts};

/// The name of a guard in lists of processes.
pub const NAME: &str = "erofs-guard";
/// The same, for the kernel.
const COMM: &std::ffi::CStr = c"erofs-guard";

/// Separates this process, which is to be a guard, from its surroundings as far as that is permitted.
pub fn keep_apart() {
    let _a_name_only = rustix::thread::set_name(COMM);
    // The last process to be killed when memory is short.
    let _not_allowed = std::fs::write("/proc/self/oom_score_adj", "-1000");
    for dir in hierarchies(&mounts().unwrap_or_default()) {
        // To the root cgroup, which no service manager ends. 0 is the writing process.
        let _not_allowed = std::fs::write(dir.join("cgroup.procs"), "0");
    }
}

/// The surroundings of a process: its cgroups, and its rank among the processes to kill when memory is
/// short.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// The files of its cgroups that take process numbers.
    groups: Vec<PathBuf>,
    oom_score: String,
}

impl Surroundings {
    /// Reads those of this process, which must not have left them yet.
    pub fn of_this_process() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            groups: own_groups(&mounts().unwrap_or_default(), &groups),
            oom_score: std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default(),
        }
    }

    /// Puts a process there, as far as that is permitted.
    pub fn put(&self, process: u32) {
        for group in &self.groups {
            let _not_allowed = std::fs::write(group, process.to_string());
        }
        if !self.oom_score.is_empty() {
            let path = format!("/proc/{process}/oom_score_adj");
            let _not_allowed = std::fs::write(path, &self.oom_score);
        }
    }
}

/// Returns the files by which a process enters the cgroups that `/proc/PID/cgroup` names.
fn own_groups(mounts: &[MountEntry], groups: &str) -> Vec<PathBuf> {
    let hierarchies = ending(mounts).map(|mount| {
        let of_version_2 = mount.fstype == "cgroup2";
        let prefix = if of_version_2 {
            "0::/"
        } else {
            ":name=systemd:/"
        };
        let mut lines = groups.lines();
        let path = lines.find_map(|line| Some(line.split_once(prefix)?.1))?;
        Some(mount.mount_point.join(path).join("cgroup.procs"))
    });
    hierarchies.flatten().collect()
}

/// Returns the roots of the hierarchies that service managers kill by: version 2, and of version 1
/// that of the service manager.
fn hierarchies(mounts: &[MountEntry]) -> Vec<PathBuf> {
    ending(mounts)
        .map(|mount| mount.mount_point.clone())
        .collect()
}

fn ending(mounts: &[MountEntry]) -> impl Iterator<Item = &MountEntry> {
    mounts.iter().filter(|mount| match mount.fstype.as_str() {
        "cgroup2" => true,
        "cgroup" => mount.options.split(',').any(|word| word == "name=systemd"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use forerun::parse_mounts;

    use super::*;

    #[test]
    fn the_hierarchies_that_matter() {
        let mountinfo = "\
22 1 0:20 / /proc rw,relatime shared:5 - proc proc rw
30 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
broken
";
        let dirs = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"];
        let mounts = parse_mounts(mountinfo.as_bytes());
        assert_eq!(hierarchies(&mounts), dirs.map(PathBuf::from));
        let groups = "5:memory:/a\n1:name=systemd:/b\n0::/c/d\n";
        let files = [
            "/sys/fs/cgroup/unified/c/d/cgroup.procs",
            "/sys/fs/cgroup/systemd/b/cgroup.procs",
        ];
        assert_eq!(own_groups(&mounts, groups), files.map(PathBuf::from));
    }
}
