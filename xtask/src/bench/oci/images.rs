//! Container images as they lie on disk: made of directories, one for each layer.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use forerun_measure::process::remove;
use forerun_testkit::indexed::{IndexedArchive, IndexedOptions, estargz, zstd_chunked};
use serde_json::{Value, json};

use super::rows::LayerForm;
use crate::process;

/// The tag of each image in its layout.
pub const TAG: &str = "v";
/// Bytes of a chunk at the most: what the programs that make such layers use.
const CHUNK: usize = 4 << 20;

/// Makes an archive of a directory.
pub fn archive(dir: &Path, path: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--format=posix", "--pax-option=delete=atime,delete=ctime"]);
    tar.args(["--sort=name", "--owner=0", "--group=0", "-C"]);
    process::run(tar.arg(dir).arg("-cf").arg(path).arg("."))
}

/// Makes a layout of an image of these archives, the lowest first.
pub fn layout(dir: &Path, archives: &[impl AsRef<Path>], form: LayerForm) -> Result<()> {
    remove(dir)?;
    match form {
        LayerForm::Gzip => by_umoci(dir, archives),
        LayerForm::Estargz => with_tables(dir, archives, estargz),
        LayerForm::Chunked => with_tables(dir, archives, zstd_chunked),
    }
}

/// Has umoci compress the layers.
fn by_umoci(dir: &Path, archives: &[impl AsRef<Path>]) -> Result<()> {
    let image = format!("{}:{TAG}", dir.display());
    process::run(Command::new("umoci").args(["init", "--layout"]).arg(dir))?;
    process::run(Command::new("umoci").args(["new", "--image", &image]))?;
    for archive in archives {
        let mut add = Command::new("umoci");
        add.args(["raw", "add-layer", "--image", &image]);
        process::run(add.arg(archive.as_ref()))?;
    }
    Ok(())
}

type MakeTable = fn(&[u8], &IndexedOptions) -> IndexedArchive;

/// Writes layers with tables of contents.
fn with_tables(dir: &Path, archives: &[impl AsRef<Path>], make: MakeTable) -> Result<()> {
    let options = IndexedOptions {
        chunk_len: CHUNK,
        ..IndexedOptions::default()
    };
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let (mut layers, mut plain) = (Vec::new(), Vec::new());
    for archive in archives {
        let made = make(&fs::read(archive.as_ref())?, &options);
        let mut layer = blob(&blobs, &made.blob, made.media_type)?;
        let annotations = made.annotations.into_iter();
        let annotations = annotations.map(|(name, value)| (name, Value::from(value)));
        layer["annotations"] = Value::Object(annotations.collect());
        layers.push(layer);
        plain.push(decoded_digest(&made.blob)?);
    }
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": plain},
    });
    let config = blob(
        &blobs,
        config.to_string().as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    )?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers,
    });
    let mut entry = blob(&blobs, manifest.to_string().as_bytes(), kind)?;
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": TAG});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    fs::write(dir.join("index.json"), index.to_string())?;
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(dir.join("oci-layout"), version.to_string())?;
    Ok(())
}

/// Returns the digest of what a layer decodes to, by which containerd names it when it was unpacked.
fn decoded_digest(blob: &[u8]) -> Result<String> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(blob)?;
    let decode = match blob {
        [0x1f, 0x8b, ..] => "gzip -dc",
        _ => "zstd -dcq",
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{decode} < \"$0\" | sha256sum")]);
    let said = process::output(shell.arg(file.path()))?;
    let digest = said.split(' ').next().context("sha256sum said nothing")?;
    Ok(format!("sha256:{digest}"))
}

/// Stores a blob under its digest, and returns its descriptor.
fn blob(blobs: &Path, bytes: &[u8], media_type: &str) -> Result<Value> {
    let new = blobs.join("new");
    fs::write(&new, bytes)?;
    let said = process::output(Command::new("sha256sum").arg(&new))?;
    let digest = said.split(' ').next().context("sha256sum said nothing")?;
    fs::rename(&new, blobs.join(digest))?;
    let digest = format!("sha256:{digest}");
    Ok(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}))
}
