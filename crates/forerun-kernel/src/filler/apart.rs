//! Keeping the guard out of what ends many processes at once, the filler among them.
//!
//! The two must not die together, and most of what kills a process kills its surroundings too: a
//! service manager ends a unit by its cgroup, SIGKILL in the end; the kernel may do the same when a
//! cgroup is out of memory; people kill by name. So the guard leaves the cgroups that things are
//! ended by, and has a name that has nothing of this program's.
//!
//! All of it is an attempt: where it may not be done, the guard is as good as without. It does not
//! help against the end of a PID namespace, nor against whoever means both.

use std::path::PathBuf;

use forerun::{MountEntry, mounts};

/// What lists of processes call a guard.
pub const NAME: &str = "erofs-guard";
/// The same, for the kernel.
const COMM: &std::ffi::CStr = c"erofs-guard";

/// Does all that can be done, in the process that is to be a guard.
pub fn keep_apart() {
    let _a_name_only = rustix::thread::set_name(COMM);
    // The last to go when memory is short.
    let _not_allowed = std::fs::write("/proc/self/oom_score_adj", "-1000");
    for dir in hierarchies(&mounts().unwrap_or_default()) {
        // To the top, which nobody ends. 0 is whoever writes it.
        let _not_allowed = std::fs::write(dir.join("cgroup.procs"), "0");
    }
}

/// Where the hierarchies are that processes are ended by: version 2, and of version 1 that of the
/// service manager.
fn hierarchies(mounts: &[MountEntry]) -> Vec<PathBuf> {
    let ends = |mount: &&MountEntry| match mount.fstype.as_str() {
        "cgroup2" => true,
        "cgroup" => mount.options.split(',').any(|word| word == "name=systemd"),
        _ => false,
    };
    let ending = mounts.iter().filter(ends);
    ending.map(|mount| mount.mount_point.clone()).collect()
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
    }
}
