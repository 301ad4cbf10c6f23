//! The configuration of a containerd that shares nothing with the machine's.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Writes the configuration of a containerd that stores everything in `dir`, listens at
/// `dir/c.sock`, and knows the snapshotter at `dir/SNAPSHOTTER` as `forerun`. Returns its path.
pub fn containerd_config(dir: &Path, snapshotter: &str) -> io::Result<PathBuf> {
    let at = |name: &str| dir.join(name).display().to_string();
    let config = format!(
        "version = 2\nroot = \"{}\"\nstate = \"{}\"\n\
         disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.internal.v1.opt\"]\n\
         [grpc]\naddress = \"{}\"\n\
         [proxy_plugins.forerun]\ntype = \"snapshot\"\naddress = \"{}\"\n",
        at("containerd"),
        at("state"),
        at("c.sock"),
        at(snapshotter)
    );
    let path = dir.join("config.toml");
    fs::write(&path, config)?;
    Ok(path)
}
