//! Machines that start the same image from one server, each with a cache of its own: the small end of
//! the model in docs/scaling.md.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::FaultProxy;

use super::Lab;
use super::cost::ForegroundMount;
use super::series::{CONSTANT, ScalingSeries, float};

const NODES: &[u64] = &[1, 2, 4, 8, 16];
/// Length of the image's file.
const LEN: usize = 64 << 20;
/// The part of it that a node reads.
const READ: u64 = 16 << 20;
/// Bytes of a read.
const STEP: u64 = 128 << 10;

pub fn measure(lab: &Lab) -> Result<Vec<ScalingSeries>> {
    let (served, source) = (lab.dir.join("served"), lab.dir.join("source"));
    fs::create_dir_all(&served)?;
    fs::create_dir_all(&source)?;
    fs::write(
        source.join("data"),
        forerun_testkit::generate::bytes(2, LEN),
    )?;
    lab.pack(&source, &served.join("image"), &["--format", "erofs"])?;
    let server = Nginx::serve(&served).context("nginx serves the image: install nginx-light")?;
    let proxy = FaultProxy::start(&server.url());
    let of = |what: &str, unit| ScalingSeries::new(what, "nodes", unit, CONSTANT);
    let mut requests = of("requests to the server for each node", "requests");
    let mut bytes = of(
        "bytes from the server for each node that reads 16 MiB",
        "MB",
    );
    let mut again = of("the same, started a second time", "bytes");
    for &nodes in NODES {
        proxy.forget();
        start(lab, &proxy, nodes)?;
        let log = proxy.log();
        requests.push(nodes, float(u64::try_from(log.requests())?) / float(nodes));
        bytes.push(nodes, float(log.sent()) / float(nodes) / 1e6);
        proxy.forget();
        start(lab, &proxy, nodes)?;
        again.push(nodes, float(proxy.log().sent()) / float(nodes));
        fs::remove_dir_all(lab.dir.join("caches"))?;
    }
    fs::remove_dir_all(served)?;
    Ok(vec![requests, bytes, again])
}

/// Has so many machines mount the image and read the same part of it.
fn start(lab: &Lab, proxy: &FaultProxy, nodes: u64) -> Result<()> {
    let url = proxy.url_of("image");
    let mut mounts = Vec::new();
    for n in 0..nodes {
        let cache = lab.dir.join(format!("caches/{n}")).display().to_string();
        let options = ["--cache-dir", &cache, "--fetch-ahead", "async"];
        mounts.push(ForegroundMount::new(
            lab,
            &url,
            &format!("nodes/{n}"),
            &options,
        )?);
    }
    let mut buffer = vec![0; usize::try_from(STEP)?];
    for mount in &mounts {
        let file = File::open(mount.dir().join("data"))?;
        for at in (0..READ).step_by(usize::try_from(STEP)?) {
            file.read_exact_at(&mut buffer, at)?;
        }
    }
    Ok(())
}
