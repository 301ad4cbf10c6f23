//! nydusd: another filesystem in userspace that loads images on demand, and can verify them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use forerun_measure::mount::Other;
use forerun_measure::process::remove;
use forerun_measure::programs::find_program;
use serde_json::json;

use crate::process;

/// Its daemon, which the bench starts.
const DAEMON: &str = "nydusd";
/// The program that makes its images.
const PACKER: &str = "nydus-image";

/// Returns why it cannot take part, if it cannot.
pub fn missing() -> Option<String> {
    let program = [DAEMON, PACKER]
        .into_iter()
        .find(|program| find_program(program).is_none())?;
    Some(format!("{program} is not installed"))
}

/// Mounts an image of a directory from a cache that has all of it, and which it `verifies` or not. The image and the cache
/// are kept below `dir`.
///
/// Its blobs are on this disk and not at a server: nothing is asked of them any more.
pub fn mount(source: &Path, dir: &Path, verifies: bool) -> Result<Other> {
    let known = fs::read(dir.join("source")).ok();
    let changed = format!("{:?}", source.join("file").metadata()?.modified()?);
    if known.as_deref() != Some(changed.as_bytes()) {
        make(source, dir).with_context(|| format!("{}: an image for {DAEMON}", dir.display()))?;
        fs::write(dir.join("source"), changed)?;
    }
    serve(dir, verifies)
}

/// Makes the image, and has its daemon fill the cache.
fn make(source: &Path, dir: &Path) -> Result<()> {
    eprintln!("making {}", dir.display());
    remove(dir)?;
    for part in ["blobs", "cache"] {
        fs::create_dir_all(dir.join(part))?;
    }
    let mut pack = Command::new(PACKER);
    // Of version 6 it verifies nothing. The file has nothing to compress.
    pack.args([
        "create",
        "--type",
        "directory",
        "--fs-version",
        "5",
        "--compressor",
        "none",
        "--blob-dir",
    ]);
    pack.arg(dir.join("blobs"))
        .arg("--bootstrap")
        .arg(dir.join("bootstrap"));
    process::output(pack.arg(source))?;
    let mounted = serve(dir, false)?;
    io::copy(
        &mut File::open(mounted.path().join("file"))?,
        &mut io::sink(),
    )?;
    Ok(())
}

fn serve(dir: &Path, verifies: bool) -> Result<Other> {
    let config = json!({
        "device": {
            "backend": { "type": "localfs", "config": { "dir": dir.join("blobs") } },
            "cache": {
                "type": "blobcache",
                // Of what is read from the cache.
                "validate": verifies,
                "config": { "work_dir": dir.join("cache") },
            },
        },
        "mode": "direct",
        // Of its metadata.
        "digest_validate": true,
    });
    fs::write(dir.join("config.json"), config.to_string())?;
    let (config, bootstrap) = (dir.join("config.json"), dir.join("bootstrap"));
    let words = |words: &'static [&'static str]| words.iter().map(OsStr::new);
    // As many open files as it would like are not allowed everywhere, and it needs few.
    let arguments: Vec<&OsStr> =
        words(&["--log-level", "error", "--rlimit-nofile", "0", "--config"])
            .chain([config.as_os_str()])
            .chain(words(&["--bootstrap"]))
            .chain([bootstrap.as_os_str()])
            .chain(words(&["--mountpoint"]))
            .collect();
    Other::daemon(DAEMON, &arguments)
}
