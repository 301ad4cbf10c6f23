//! The configuration of a containerd that shares nothing with that of the machine.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Writes the configuration of a containerd that keeps all it has in `dir`, listens at `c.sock` there, and knows the
/// snapshotter at the socket `snapshotter` of `dir` as `forerun`. Returns its path.
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
