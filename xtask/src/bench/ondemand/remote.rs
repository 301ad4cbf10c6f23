//! Images mounted from the server, and the link to it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forerun_measure::mount::{Access, Mounted};
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link};
use serde_json::Value;

use super::inputs::OndemandInputs;
use super::rows::OndemandImage;
use crate::process;

/// Bytes that the link carries in a second.
pub const RATE: u64 = 100_000_000;
/// For people.
pub const LINK_TEXT: &str = "100 MB/s, 20 ms";
/// The longest time that filling the cache may take.
const FILL_TIMEOUT: Duration = Duration::from_secs(600);

/// Starts the link.
pub fn link(inputs: &OndemandInputs) -> FaultProxy {
    let proxy = FaultProxy::start(&inputs.server.url());
    proxy.set_link(Link {
        rtt: Duration::from_millis(20),
        bytes_per_second: Some(RATE),
    });
    proxy
}

/// Mounts an image by its address, with a cache and further options.
pub fn mount(
    inputs: &OndemandInputs,
    address: String,
    cache: &Path,
    options: &[OsString],
) -> Result<Mounted> {
    let mut arguments = vec![OsString::from("--cache-dir"), cache.into()];
    arguments.extend_from_slice(options);
    let address = PathBuf::from(address);
    Mounted::with_arguments(&inputs.forerun, &address, Access::ROOT, &arguments)
}

/// Mounts an image that is all here. Fetches it now if it is not.
pub fn mount_complete(inputs: &OndemandInputs, image: OndemandImage) -> Result<Mounted> {
    let all = ["--prefetch", "all"].map(OsString::from);
    let cache = inputs.complete_cache();
    let mounted = mount(inputs, inputs.address(image), &cache, &all)?;
    let start = Instant::now();
    while !is_complete(inputs, &mounted.path())? {
        ensure!(
            start.elapsed() < FILL_TIMEOUT,
            "not all here in {FILL_TIMEOUT:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(mounted)
}

/// Returns whether `forerun status` says that all of the image is in the cache. The mount keeps its way to the
/// network until it has verified every chunk, which is part of what is measured.
fn is_complete(inputs: &OndemandInputs, point: &Path) -> Result<bool> {
    let said = process::output(Command::new(&inputs.forerun).args(["status", "--json"]))?;
    let mounts: Value = serde_json::from_str(&said).context("forerun status --json")?;
    let mut mounts = mounts.as_array().into_iter().flatten();
    let mount = mounts.find(|mount| mount["dir"].as_str().map(Path::new) == Some(point));
    Ok(mount.is_some_and(|mount| mount["remote"]["complete"] == true))
}
