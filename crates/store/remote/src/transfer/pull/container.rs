//! Fetches a container image into an OCI image layout: a directory with blobs by digest, and an
//! index of names.
//!
//! Blobs are written first and the index last, so that a layout never names a missing blob.
//! Documents of Docker's types are stored with the equivalent OCI types, because tools that read
//! layouts accept no others.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use forerun_cache::Digest;
use forerun_io::{FileSource, ReadAt as _};
use serde_json::{Value, json};

use crate::address::image_name::ImageName;
use crate::oci::media;
use crate::registry::FoundContainer;
use crate::transfer::pull::{Progress, PullOptions, Pulled};
use crate::{Identity, Layout, RemoteError, Result};

/// The file that marks a directory as a layout.
const MARK: &str = "oci-layout";
const VERSION: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256";
/// The annotation with the name of an image.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Longest existing index that can be extended.
const MAX_INDEX: u64 = 4 << 20;

const TYPES: [(&str, &str); 4] = [
    (media::DOCKER_MANIFEST, media::OCI_MANIFEST),
    (media::DOCKER_CONFIG, media::OCI_CONFIG),
    (
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.oci.image.layer.v1.tar+gzip",
    ),
    (
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.oci.image.layer.v1.tar",
    ),
];

/// Fetches `image`, with the configuration `config` and the name `name`, into the layout at `dir`.
/// Other images in the layout stay. Refuses a directory that is not a layout.
pub(crate) fn pull(
    (image, config): (&FoundContainer, &[u8]),
    name: &ImageName,
    dir: &Path,
    options: &PullOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pulled> {
    let failed = |error: io::Error| refused(dir, error.to_string());
    prepare(dir)?;
    let blobs = dir.join(BLOBS);
    let total = image.layers.iter().map(|layer| layer.len).sum();
    let mut whole = Progress {
        done: 0,
        total,
        transferred: 0,
    };
    let mut of_layer = options.clone();
    // A blob with the right bytes stays. A different file of that name is damaged and is replaced.
    of_layer.overwrite = true;
    for layer in &image.layers {
        let Identity::Blob(digest) = layer.identity else {
            return Err(refused(dir, "a layer has no digest".to_owned()));
        };
        let before = whole;
        fetch(layer, digest, &blobs, &of_layer, &mut |part| {
            whole.done = before.done + part.done;
            whole.transferred = before.transferred + part.transferred;
            progress(whole);
        })?;
        whole.done = before.done + layer.len;
        progress(whole);
    }
    let manifest = in_types_of_oci(&image.manifest).map_err(|reason| refused(dir, reason))?;
    let digest = Digest::of(&manifest);
    put(&blobs.join(image.config.digest.hex()), config).map_err(failed)?;
    put(&blobs.join(digest.hex()), &manifest).map_err(failed)?;
    let index = index(dir, name, digest, manifest.len())?;
    put(&dir.join(INDEX), &index).map_err(failed)?;
    Ok(Pulled {
        len: total,
        verified: true,
        is_container: true,
    })
}

fn prepare(dir: &Path) -> Result<()> {
    let failed = |error: io::Error| refused(dir, error.to_string());
    let mark = dir.join(MARK);
    if mark.symlink_metadata().is_err() && dir.symlink_metadata().is_ok() {
        let mut entries = fs::read_dir(dir).map_err(failed)?;
        if entries.next().is_some() {
            let reason = "it is neither empty nor an OCI image layout".to_owned();
            return Err(refused(dir, reason));
        }
    }
    fs::create_dir_all(dir.join(BLOBS)).map_err(failed)?;
    put(&mark, VERSION.as_bytes()).map_err(failed)
}

/// Fetches a layer, unless its file is complete.
fn fetch(
    layer: &Layout,
    digest: Digest,
    blobs: &Path,
    options: &PullOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let path = blobs.join(digest.hex());
    if is_there(&path, layer.len, digest) {
        return Ok(());
    }
    if layer.len == 0 {
        put(&path, b"").map_err(|error| refused(&path, error.to_string()))?;
    } else {
        super::pull(layer, &path, options, progress)?;
    }
    if layer.len > 0 || digest == Digest::of(b"") {
        Ok(())
    } else {
        Err(RemoteError::WrongDigest {
            place: layer.place.clone(),
            range: 0..0,
            expected: digest,
        })
    }
}

fn is_there(path: &Path, len: u64, digest: Digest) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    let source = is_file.then(|| FileSource::open(path).ok()).flatten();
    source.is_some_and(|source| {
        source.len() == len && Digest::of_source(&source).is_ok_and(|found| found == digest)
    })
}

fn in_types_of_oci(manifest: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut value: Value = serde_json::from_slice(manifest).map_err(|error| error.to_string())?;
    let mut is_changed = false;
    let mut change = |object: Option<&mut Value>| {
        let known = object.and_then(|object| object.get_mut("mediaType"));
        let Some(known) = known else {
            return;
        };
        let of_oci = TYPES.iter().find(|(docker, _)| known == docker);
        if let Some((_, of_oci)) = of_oci {
            *known = Value::from(*of_oci);
            is_changed = true;
        }
    };
    change(Some(&mut value));
    change(value.get_mut("config"));
    let layers = value.get_mut("layers").and_then(Value::as_array_mut);
    for layer in layers.into_iter().flatten() {
        change(Some(layer));
    }
    if is_changed {
        serde_json::to_vec(&value).map_err(|error| error.to_string())
    } else {
        Ok(manifest.to_vec())
    }
}

/// Returns the layout's index with the image added. The image replaces one of the same name.
fn index(dir: &Path, name: &ImageName, digest: Digest, len: usize) -> Result<Vec<u8>> {
    let path = dir.join(INDEX);
    let mut index = match path.symlink_metadata() {
        Ok(found) if found.is_file() && found.len() <= MAX_INDEX => {
            let bytes = fs::read(&path).map_err(|error| refused(&path, error.to_string()))?;
            let index: serde_json::Result<Value> = serde_json::from_slice(&bytes);
            index.map_err(|error| refused(&path, error.to_string()))?
        }
        Ok(_) => return Err(refused(&path, "it is not an index of images".to_owned())),
        Err(_) => json!({"schemaVersion": 2, "mediaType": media::OCI_INDEX, "manifests": []}),
    };
    let Some(manifests) = index.get_mut("manifests").and_then(Value::as_array_mut) else {
        return Err(refused(&path, "it has no list of manifests".to_owned()));
    };
    let mut entry = json!({
        "mediaType": media::OCI_MANIFEST, "digest": digest.to_string(), "size": len
    });
    let tag = match name.digest {
        Some(_) => None,
        None => Some(name.reference()),
    };
    if let (Some(tag), Some(entry)) = (&tag, entry.as_object_mut()) {
        entry.insert("annotations".to_owned(), json!({ NAME: tag }));
    }
    let name_of = |entry: &Value| {
        let annotations = entry.get("annotations")?;
        Some(annotations.get(NAME)?.as_str()?.to_owned())
    };
    manifests.retain(|other| match &tag {
        Some(_) => name_of(other) != tag,
        None => name_of(other).is_some() || other.get("digest") != entry.get("digest"),
    });
    manifests.push(entry);
    serde_json::to_vec(&index).map_err(|error| refused(&path, error.to_string()))
}

/// Writes a file, which gets its name once it is complete and durable. A file with the same bytes
/// stays.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn refused(path: &Path, reason: String) -> RemoteError {
    RemoteError::Refused {
        place: path.display().to_string(),
        reason,
    }
}
