//! The memory limits of the control groups that a process is in.
//!
//! The limit of a group applies to everything below it, so the lowest limit among the ancestors
//! counts. Version 2 has `memory.max` and `memory.high`; version 1 `memory.limit_in_bytes`, and in
//! `memory.stat` the lowest limit of all ancestors, including ancestors outside a container. A
//! machine may have both versions, one of them with the memory controller.
//!
//! `/proc/self/cgroup` names the group by its path from the root of the process's cgroup namespace,
//! and `mountinfo` names the mounted group from the same root. These paths may not match: in a
//! container without a namespace of its own, or with a hierarchy that was mounted outside the
//! namespace. The group is then searched for below the mount by the process's number. If it is not
//! found, the mounted group is used.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::mount_table::{MountEntry, mounts};
use crate::read_kernel_file;

/// Most directories searched for the group of this process.
const LOOKED_INTO: usize = 4096;

/// A limit in bytes, and the file that holds it.
type Limit = (u64, PathBuf);

/// The version of the hierarchy that a line of `/proc/self/cgroup` describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Version 1 with the memory controller.
    One,
    Two,
}

/// Returns the lowest limit of the groups that this process is in, or `None` without a limit.
pub fn limit_of_process() -> Option<Limit> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = mounts().ok()?;
    limit_of(&groups, &mounts, std::process::id())
}

/// Returns the lowest limit of the process `pid`, given the contents of its `/proc/PID/cgroup`.
fn limit_of(groups: &str, mounts: &[MountEntry], pid: u32) -> Option<Limit> {
    let limits = groups.lines().filter_map(|line| {
        let (version, group) = parse(line)?;
        // The last of several mounts is the visible one.
        let of_version = mounts.iter().rev().filter(|mount| version.is_of(mount));
        let fits = |mount: &&MountEntry| below(&mount.root, group).is_some();
        let mount = of_version.clone().find(fits);
        let mount = mount.or_else(|| of_version.clone().next())?;
        version.least(&directory(mount, group, pid), &mount.mount_point)
    });
    limits.min()
}

/// Parses a line of `/proc/PID/cgroup`, `number:controllers:path`.
fn parse(line: &str) -> Option<(Version, &Path)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let version = match controllers {
        "" => Version::Two,
        _ if controllers.split(',').any(|name| name == "memory") => Version::One,
        _ => return None,
    };
    Some((version, Path::new(path)))
}

/// Returns the path of a group relative to the mounted group `root`, or `None` if it is not below
/// it.
fn below<'p>(root: &Path, group: &'p Path) -> Option<&'p Path> {
    let rest = group.strip_prefix(root).ok()?;
    let goes_up = rest.components().any(|part| part == Component::ParentDir);
    (!goes_up).then_some(rest)
}

fn directory(mount: &MountEntry, group: &Path, pid: u32) -> PathBuf {
    if let Some(rest) = below(&mount.root, group) {
        return mount.mount_point.join(rest);
    }
    let mut left = LOOKED_INTO;
    let found = look_for(&mount.mount_point, pid, &mut left);
    found.unwrap_or_else(|| mount.mount_point.clone())
}

/// Searches for the group of a process below a directory.
fn look_for(dir: &Path, pid: u32, left: &mut usize) -> Option<PathBuf> {
    *left = left.checked_sub(1)?;
    let members = read(&dir.join("cgroup.procs")).unwrap_or_default();
    if members.lines().any(|member| member.parse() == Ok(pid)) {
        return Some(dir.to_path_buf());
    }
    let entries = fs::read_dir(dir).ok()?.flatten();
    let mut groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.find_map(|group| look_for(&group.path(), pid, left))
}

impl Version {
    fn is_of(self, mount: &MountEntry) -> bool {
        match self {
            Self::One => mount.fstype == "cgroup" && mount.has_option("memory"),
            Self::Two => mount.fstype == "cgroup2",
        }
    }

    /// Returns the lowest limit from the group in `dir` up to `top`.
    fn least(self, dir: &Path, top: &Path) -> Option<Limit> {
        let is_inside = |dir: &&Path| dir.starts_with(top);
        let groups = dir.ancestors().take_while(is_inside);
        match self {
            Self::Two => groups
                .flat_map(|group| ["memory.max", "memory.high"].map(|name| group.join(name)))
                .filter_map(limit_in)
                .min(),
            Self::One => {
                let is_flat = read(&dir.join("memory.use_hierarchy")).as_deref() == Some("0");
                let most = if is_flat { 1 } else { usize::MAX };
                let files = groups.map(|group| group.join("memory.limit_in_bytes"));
                let limits = files.take(most).filter_map(limit_in);
                limits.chain(hierarchical(dir)).min()
            }
        }
    }
}

/// Parses a file with one limit. Returns `None` for `max`, which means no limit.
fn limit_in(file: PathBuf) -> Option<Limit> {
    let bytes = read(&file)?.parse().ok()?;
    Some((bytes, file))
}

/// Returns the lowest limit of a group of version 1 and all its ancestors.
fn hierarchical(dir: &Path) -> Option<Limit> {
    let file = dir.join("memory.stat");
    let stat = read(&file)?;
    let value = stat
        .lines()
        .find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
    Some((value.parse().ok()?, file))
}

fn read(file: &Path) -> Option<String> {
    let mut text = String::from_utf8(read_kernel_file(file).ok()?).ok()?;
    text.truncate(text.trim_end().len());
    Some(text)
}

#[cfg(test)]
mod tests;
