//! Entry points for fuzz targets, and images to start from. Not for users.
//!
//! They are plain functions over bytes, so that the same code runs under a fuzzer and, with mutated
//! seeds, in ordinary tests. They panic only if the driver breaks its contract, for example if it
//! opens anything except objects of the store.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_build::{BuildError, Content, NewNode, NodeKind, Tree};
use forerun_io::{BlobId, MemorySource, Observer, ReadAt, u64_from, usize_from};
use forerun_vfs::{
    BlobName, Blobs as _, Device, Error, FileSystem, FileType, NodeId, Objects as _, OpenWith,
    Place, ResolveBlob, Verity, Walk, exercise,
};

pub use forerun_vfs::exercise::limits;

use crate::dump::{DumpName, dump_line};
use crate::gc::referenced;
use crate::overlay::{Metacopy, Shown, escape, metacopy, read_metacopy, shown};
use crate::write::{ComposefsOptions, FileData, Files, read_dump, write, write_metadata};
use crate::{Algorithm, Composefs, Digest, ObjectName, Payload};

/// Parses `bytes` as the attributes that locate the contents of a file: a redirect, a digest, an
/// attribute name.
pub fn attributes(bytes: &[u8]) {
    if let Some(name) = ObjectName::parse(bytes) {
        let path = name.path();
        stays(path.as_bytes());
        assert_eq!(ObjectName::parse(path.as_bytes()), Some(name));
        assert_eq!(bytes.strip_prefix(b"/").unwrap_or(bytes), path.as_bytes());
    }
    if let Metacopy::Digest(digest) = read_metacopy(bytes) {
        assert_eq!(metacopy(Some(&digest)), bytes);
    }
    match shown(bytes) {
        Shown::Plain(name) => assert_eq!(escape(name), bytes),
        Shown::Unescaped(name) => assert_eq!(escape(&name), bytes),
        Shown::Hidden => assert_ne!(escape(bytes), bytes),
    }
}

/// Checks that the path of an object stays in a store, and leads to no other file in it.
fn stays(path: &[u8]) {
    let is_hex = |part: &[u8]| {
        let mut digits = part.iter();
        digits.all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    };
    let path = path.strip_suffix(b".file").unwrap_or(path);
    let mut parts = path.split(|&byte| byte == b'/');
    let (dir, name) = (parts.next(), parts.next());
    let sound = |part: Option<&[u8]>, len: &[usize]| {
        part.is_some_and(|part| len.contains(&part.len()) && is_hex(part))
    };
    assert!(
        sound(dir, &[2]) && sound(name, &[62, 126]) && parts.next().is_none(),
        "{}",
        String::from_utf8_lossy(path)
    );
}

struct Anything;

impl ResolveBlob for Anything {
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>> {
        match blob {
            BlobName::Object { path } => match Payload::parse(path) {
                Some(Payload::Object(_)) => stays(path),
                other => assert_eq!(other, Some(Payload::Path(path.clone()))),
            },
            // Devices belong to the EROFS driver.
            other @ BlobName::Device { .. } => {
                return Err(io::Error::new(io::ErrorKind::NotFound, other.to_string()));
            }
        }
        Ok(Arc::new(MemorySource::new(OBJECT)))
    }
}

const OBJECT: &[u8] = &[7; 300];

/// Opens `bytes` as an image and calls every method on every node. Returns the errors, and the
/// problems that `check` reports.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let mut errors = Vec::new();
    for verity in [Verity::Off, Verity::Require] {
        let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
        with.limits = limits();
        with.blobs.resolve = Arc::new(Anything);
        with.blobs.verity = verity;
        match Composefs::open(with) {
            Ok(fs) => {
                errors.extend(exercise::all(&fs, &limits()));
                errors.extend(open_all(&fs));
            }
            Err(error) => errors.push(error),
        }
    }
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    errors.extend(referenced(with, &mut HashSet::new()).err());
    errors
}

/// Opens the object of each file, like a front end does when the file is opened.
fn open_all(fs: &Composefs) -> Vec<Error> {
    let mut errors = Vec::new();
    for entry in Walk::new(fs, fs.root(), &limits()).flatten() {
        if !entry
            .metadata
            .is_ok_and(|metadata| metadata.kind == FileType::Regular)
        {
            continue;
        }
        let mut blobs = Vec::new();
        let mapped = fs.map(entry.node, 0..1 << 20, &mut |extent| {
            if let Place::Stored { blob, .. } = extent.place {
                blobs.push(blob);
            }
            ControlFlow::Continue(())
        });
        errors.extend(mapped.err());
        for blob in blobs.into_iter().filter(|&blob| blob != BlobId::IMAGE) {
            errors.extend(fs.blob(blob).err());
        }
        errors.extend(fs.backing(entry.node).err());
    }
    errors
}

/// Parses `bytes` as a dump, and makes an image of it if the format can hold it. The dump of that image makes an image
/// with the same dump.
pub fn dump(bytes: &[u8]) {
    let Ok((tree, files)) = read_dump(bytes) else {
        return;
    };
    let Some(text) = dump_of_image(&tree, &files) else {
        return;
    };
    let again = read_dump(&*text).ok();
    let again = again.and_then(|(tree, files)| dump_of_image(&tree, &files));
    assert_eq!(again, Some(text));
}

/// Makes an image and dumps it. Returns `None` if the format cannot hold the tree.
fn dump_of_image(tree: &Tree, files: &Files) -> Option<Vec<u8>> {
    let options = ComposefsOptions {
        max_version: 0,
        ..ComposefsOptions::default()
    };
    let mut image = Vec::new();
    write_metadata(tree, files, &options, &mut image, &Arc::default()).ok()?;
    let mut with = OpenWith::new(Arc::new(MemorySource::new(&*image)));
    with.limits = limits();
    let opened = Composefs::open(with);
    assert!(opened.is_ok(), "an image that was just made does not open");
    let fs = opened.ok()?;
    let mut lines = Vec::new();
    let mut seen: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
    for entry in Walk::new(&fs, fs.root(), &limits()) {
        // The limits are lower than those of a dump.
        let entry = entry.ok()?;
        let path = [b"/", &*entry.path].concat();
        let link_to = seen.get(&entry.node).map(Vec::as_slice);
        let name = DumpName {
            path: &path,
            link_to,
        };
        let metadata = entry.metadata.ok()?;
        lines.extend(
            dump_line(&fs, (entry.node, &metadata), &name, |len| {
                inline(&fs, entry.node, len, &image)
            })
            .ok()?,
        );
        if !metadata.is_dir() {
            seen.entry(entry.node).or_insert(path);
        }
    }
    Some(lines)
}

/// Reads the contents of a file that an image holds.
fn inline(fs: &Composefs, node: NodeId, len: usize, image: &[u8]) -> Result<Vec<u8>, Error> {
    let mut content = vec![0; len];
    fs.map(node, 0..u64_from(len), &mut |extent| {
        let Range { start, end } = extent.logical;
        let out = &mut content[usize_from(start)..usize_from(end)];
        match extent.place {
            Place::Stored { offset, .. } => {
                out.copy_from_slice(&image[usize_from(offset)..][..out.len()])
            }
            Place::Inline(bytes) => out.copy_from_slice(&bytes),
            Place::Zero | Place::Encoded { .. } => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(content)
}

/// Creates dumps, as seeds.
///
/// # Errors
/// None, because they are all in memory and small.
pub fn dump_seeds() -> Result<Vec<(&'static str, Vec<u8>)>, BuildError> {
    let (tree, files) = everything()?;
    let links =
        b"/ 4096 40755 2 0 0 0 -5.6 - - - user.a\\x3d=\\x00\\n\n/d 0 40755 2 0 0 0 5.0 - - -\n\
        /d/f 2 100644 2 1 2 0 5.7 - \\x2d\\t - user.b=\n/a 0 @100644 2 0 0 0 0.0 /d/f - -\n\
        /base 70 100644 1 1 2 0 5.7 etc/ssh - -\n/dev 0 20600 1 0 0 1048832 5.0 - - -\n";
    let dumped = dump_of_image(&tree, &files).unwrap_or_default();
    Ok(vec![("dumped", dumped), ("links", links.to_vec())])
}

/// Creates attributes as images have them, as seeds.
#[must_use]
pub fn attribute_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let digest = Algorithm::Sha256.digest(OBJECT);
    let path = digest.object_path();
    vec![
        ("redirect", format!("/{path}").into_bytes()),
        ("relative", path.clone().into_bytes()),
        ("ostree", format!("/{path}.file").into_bytes()),
        ("metacopy", metacopy(Some(&digest))),
        ("sha512", metacopy(Some(&Algorithm::Sha512.digest(OBJECT)))),
        ("plain", vec![0, 4, 0, 0]),
        ("escaped", b"trusted.overlay.overlay.redirect".to_vec()),
        ("hidden", b"trusted.overlay.redirect".to_vec()),
    ]
}

/// Returns small images that together cover the whole format, as seeds.
pub fn seeds() -> Result<Vec<(&'static str, Vec<u8>)>, BuildError> {
    let (tree, files) = everything()?;
    let mut seeds = Vec::new();
    for (name, version) in [("version 0", 0), ("version 1", 1)] {
        let mut options = ComposefsOptions::default();
        (options.min_version, options.max_version) = (version, version);
        let mut image = Vec::new();
        write_metadata(
            &tree,
            &files,
            &options,
            &mut image,
            &Arc::new(Observer::default()),
        )?;
        seeds.push((name, image));
    }
    let mut empty = Vec::new();
    let observer = Arc::new(Observer::default());
    write(
        &Tree::default(),
        &ComposefsOptions::default(),
        &mut empty,
        &observer,
    )?;
    seeds.push(("empty", empty));
    Ok(seeds)
}

/// Returns files inside and outside of the image, with and without a digest, and attributes that
/// overlayfs would interpret.
fn everything() -> Result<(Tree, Files), BuildError> {
    let (mut tree, mut files) = (Tree::default(), Files::default());
    let file = |len| {
        let content = Content::Bytes(OBJECT.into());
        NewNode::new(NodeKind::File { len, content }, 0o644)
    };
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory())?;
    let digest = Algorithm::Sha256.digest(OBJECT);
    let unchecked = FileData::Object {
        path: Some(Digest::Sha256([0x5a; 32]).object_path().into_bytes()),
        digest: None,
    };
    for (name, data, len) in [
        (&b"inline"[..], FileData::Inline(OBJECT[..40].to_vec()), 40),
        (b"object", FileData::object(digest), 300),
        (b"unchecked", unchecked, 5000),
        (b"empty", FileData::Inline(Vec::new()), 0),
    ] {
        let mut node = file(len);
        node.xattrs = BTreeMap::from([
            (b"user.own".to_vec(), name.to_vec()),
            (b"trusted.overlay.opaque".to_vec(), b"y".to_vec()),
        ]);
        files.insert(tree.add(dir, name, node)?, data);
    }
    let device = Device { major: 7, minor: 3 };
    for (name, kind) in [
        (&b"link"[..], NodeKind::Symlink(b"dir/inline".to_vec())),
        (b"whiteout", NodeKind::CharDevice(Device::default())),
        (b"device", NodeKind::BlockDevice(device)),
        (b"fifo", NodeKind::Fifo),
    ] {
        tree.add(Tree::ROOT, name, NewNode::new(kind, 0o600))?;
    }
    Ok((tree, files))
}
