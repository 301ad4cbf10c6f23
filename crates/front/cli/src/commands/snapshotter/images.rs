//! Images for the snapshotter. Other processes of this program inspect and mount them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forerun::unstable::cache::{Cache, CacheError, CacheOptions};
use forerun::unstable::remote::Identity;
use forerun_snapshotter::{Images, LayerFacts, ManifestFacts};
use serde_json::Value;

use super::SnapshotterArgs;
use crate::args::CacheArgs;
use crate::error::without_errno;
use crate::mount::newest_program;
use crate::umount::{UmountArgs, unmount};

/// Mount options. overlayfs allows set-user-ID and devices only as far as the mount below it does.
/// A server that dies is replaced, up to ten times a minute.
const OPTIONS: &str = "allow_other,suid,dev,restarts=10";
/// How long the processes of a mount may take to exit after it.
const ENDING: Duration = Duration::from_secs(5);

/// Starts processes of this program with the image options of the snapshotter.
#[derive(Debug)]
pub struct MountedImages {
    cache: Option<PathBuf>,
    words: Vec<OsString>,
    no_sandbox: bool,
}

impl MountedImages {
    pub fn new(args: &SnapshotterArgs, cache: &CacheArgs, no_sandbox: bool) -> Self {
        let mut words = [cache.words(), args.server.words()].concat();
        if args.referrers {
            words.push("--referrers".into());
        }
        Self {
            cache: cache.cache_dir.clone(),
            words,
            no_sandbox,
        }
    }

    fn command(&self, command: &str, more: &[&str]) -> Command {
        let mut process = Command::new(newest_program());
        process.arg(command).args(more).args(&self.words);
        if self.no_sandbox {
            process.arg("--no-sandbox");
        }
        // Only this process reports to the service manager.
        process.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        process
    }
}

fn output(mut process: Command) -> Result<Vec<u8>, String> {
    let output = process.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    // Hints are for people at a terminal.
    let text = text.split("\n  hint: ").next().unwrap_or_default();
    let text = text.trim().trim_start_matches("forerun: ").to_owned();
    Err(if text.is_empty() {
        format!("the process that opens it failed: {}", output.status)
    } else {
        text
    })
}

impl Images for MountedImages {
    fn manifest(&self, image: &str) -> Result<ManifestFacts, String> {
        let mut process = self.command("__layers", &["--quiet", "--fetch-ahead", "off"]);
        process.arg(image);
        let told = output(process)?;
        let told: Value = serde_json::from_slice(&told).map_err(|error| error.to_string())?;
        facts(&told).ok_or_else(|| "the layers were not told".to_owned())
    }

    fn mount(&self, image: &str, layers: usize, dir: &Path, log: &Path) -> Result<(), String> {
        let layers = layers.to_string();
        let options = ["--quiet", "-o", OPTIONS, "--first-layers", &layers];
        let mut process = self.command("mount", &options);
        process.arg("--log").arg(log).arg(image).arg(dir);
        output(process).map(drop)
    }

    fn is_mounted(&self, dir: &Path) -> io::Result<bool> {
        let entry = match forerun_sys::mountpoint::mount_at(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entry => entry?,
        };
        if entry.is_none() {
            return Ok(false);
        }
        // The kernel never answers this request from a cache.
        match rustix::fs::statvfs(dir) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOTCONN) => {
                tracing::warn!(dir = %dir.display(), "the mount of layers is dead, and is taken down");
                self.unmount(dir).map_err(io::Error::other)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn unmount(&self, dir: &Path) -> Result<(), String> {
        let args = UmountArgs {
            lazy: true,
            dead: false,
            force: false,
            dirs: Vec::new(),
        };
        unmount(dir, &args).map_err(|failure| failure.message)
    }

    fn forget(&self, layers: Vec<String>) -> Vec<String> {
        let Some(dir) = &self.cache else {
            return Vec::new();
        };
        let cache = match Cache::open(dir, CacheOptions::default()) {
            Ok(cache) => cache,
            Err(error) => {
                tracing::warn!("{}", without_errno(&error.to_string()));
                return layers;
            }
        };
        let names = match cache.identities() {
            Ok(names) => names,
            Err(error) => {
                tracing::warn!("{}", without_errno(&error.to_string()));
                return layers;
            }
        };
        let start = Instant::now();
        let mut left = layers;
        loop {
            left.retain(|layer| is_in_use(&cache, &names, layer));
            if left.is_empty() || start.elapsed() > ENDING {
                // Also removes facts about names whose layers are gone.
                if let Err(error) = cache.shrink_to(u64::MAX) {
                    tracing::debug!("{error}");
                }
                return left;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Removes a layer from the cache, where it may have several of `names`. Returns whether a process
/// still uses it.
fn is_in_use(cache: &Cache, names: &[String], layer: &str) -> bool {
    let Ok(digest) = layer.parse() else {
        return false;
    };
    let identity = Identity::Blob(digest);
    let mut is_used = false;
    for name in names.iter().filter(|name| identity.is_named(name)) {
        match cache.remove(name) {
            Err(CacheError::InUse { .. }) => is_used = true,
            Ok(()) | Err(CacheError::Unknown { .. }) => {}
            Err(error) => tracing::warn!("{}", without_errno(&error.to_string())),
        }
    }
    is_used
}

fn facts(told: &Value) -> Option<ManifestFacts> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let layers = told["layers"].as_array()?.iter().map(|layer| {
        Some(LayerFacts {
            digest: text(&layer["digest"])?,
            chain: text(&layer["chain"])?,
            table: text(&layer["table"]),
            is_claimed: layer["claimed"].as_bool()?,
        })
    });
    Some(ManifestFacts {
        digest: text(&told["digest"])?,
        layers: layers.collect::<Option<_>>()?,
    })
}
