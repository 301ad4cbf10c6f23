//! Serving processes that do not answer: they are stopped, or the machine stalls.

use std::path::Path;

use serde_json::{Value, json};

/// A process that listens at a socket and did not answer in time.
#[derive(Clone, Debug)]
pub struct Silent {
    /// The process id, from the name of the socket.
    pub pid: u64,
    /// The mounts that the process serves, as far as the kernel reports them.
    pub mounts: Vec<SilentMount>,
}

#[derive(Clone, Debug)]
pub struct SilentMount {
    /// The device number, as in the answers of other processes.
    pub device: String,
    pub dir: String,
    /// The image, as the mount table names it.
    pub image: String,
}

impl Silent {
    pub fn at(socket: &Path) -> Self {
        let pid = pid_of(socket);
        let connections = connections(pid);
        let all = forerun_sys::mount_table::mounts().unwrap_or_default();
        let mounts = all.into_iter().filter_map(|entry| {
            let (major, minor) = entry.device;
            let is_its = major == 0 && connections.contains(&u64::from(minor));
            is_its.then(|| SilentMount {
                device: format!("{major}:{minor}"),
                dir: entry.mount_point.display().to_string(),
                image: entry.source.display().to_string(),
            })
        });
        let mounts = mounts.collect();
        Self { pid, mounts }
    }

    /// Returns whether the process serves the mount of this device, or `None` if the kernel does
    /// not report it.
    pub fn serves(&self, device: &str) -> Option<bool> {
        let is_known = !self.mounts.is_empty();
        is_known.then(|| self.mounts.iter().any(|mount| mount.device == device))
    }

    /// Returns the mounts as `forerun status` reports them. Without known mounts, returns one
    /// without a mount point.
    pub fn rows(&self) -> Vec<Value> {
        let row = |mount: Option<&SilentMount>| {
            json!({
                "pid": self.pid,
                "dir": mount.map(|mount| &mount.dir),
                "image": mount.map(|mount| &mount.image),
                "device": mount.map(|mount| &mount.device),
                "answering": false,
            })
        };
        match &*self.mounts {
            [] => vec![row(None)],
            mounts => mounts.iter().map(|mount| row(Some(mount))).collect(),
        }
    }
}

/// Returns the id of the process that made a socket, from the socket's name, or 0 if the name has
/// none.
pub fn pid_of(socket: &Path) -> u64 {
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    let number = name.split(['-', '.']).next().unwrap_or_default();
    number.parse().unwrap_or_default()
}

/// Returns the FUSE connections that a process holds. Only newer kernels report them.
fn connections(pid: u64) -> Vec<u64> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let mut found = Vec::new();
    for file in files.into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let number = text
            .lines()
            .filter_map(|line| line.strip_prefix("fuse_connection:"))
            .filter_map(|number| number.trim().parse::<u64>().ok());
        found.extend(number);
    }
    found
}
