//! SIF files with more than a root filesystem: container images, and overlay partitions.

use std::sync::Arc;

use forerun::build::{Content, ErofsOptions, NewNode, NodeKind, SquashfsOptions, Tree};
use forerun::unstable::KeptIndex;
use forerun::unstable::disk::Container;
use forerun::vfs::{Device, Error};
use forerun::{Image, LayerSource, MemorySource, Observer, OpenOptions, Writer};
use forerun_testkit::sif::{SQUASHFS_LAYER, SifFile};
use forerun_testkit::temp_dir;
use libdeflater::{CompressionLvl, Compressor};

/// Creates an image of files by name and content. A name without content is hidden in lower layers.
fn image(writer: &Writer, files: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut tree = Tree::default();
    for (name, content) in files {
        let kind = match content {
            Some(text) => NodeKind::File {
                len: text.len() as u64,
                content: Content::Bytes(text.as_bytes().into()),
            },
            None => NodeKind::CharDevice(Device::default()),
        };
        let node = NewNode::new(kind, 0o644);
        tree.add(Tree::ROOT, name.as_bytes(), node).unwrap();
    }
    let mut out = Vec::new();
    let observer = Arc::new(Observer::default());
    writer.write(&tree, &mut out, &observer).unwrap();
    out
}

fn squashfs(files: &[(&str, Option<&str>)]) -> Vec<u8> {
    image(&Writer::Squashfs(SquashfsOptions::default()), files)
}

fn open(bytes: Vec<u8>) -> Result<Image, Error> {
    Image::from_source(Arc::new(MemorySource::new(bytes)), &OpenOptions::default())
}

#[test]
fn an_archive_with_the_magic_number_in_a_name_is_an_archive() {
    let name = format!("{}SIF_MAGIC", "x".repeat(32));
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(4);
    header.set_mode(0o644);
    let added = archive.append_data(&mut header, &name, &b"text"[..]);
    added.unwrap();
    let image = open(archive.into_inner().unwrap()).unwrap();
    assert_eq!(files(&image), expected(&[(&name, "text")]));
}

/// Returns the files of an image and their contents.
fn files(image: &Image) -> Vec<(String, String)> {
    let entries = image.read_dir("/").unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let name = entry.unwrap().name().to_string_lossy().into_owned();
            let text = image.read_to_string(&name).unwrap();
            (name, text)
        })
        .collect();
    files.sort();
    files
}

fn expected(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let files = files.iter();
    let files = files.map(|(name, text)| ((*name).to_string(), (*text).to_string()));
    files.collect()
}

fn lower() -> Vec<u8> {
    squashfs(&[("gone", Some("1")), ("kept", Some("1")), ("new", Some("1"))])
}

fn upper() -> Vec<u8> {
    squashfs(&[("gone", None), ("new", Some("2"))])
}

/// Creates a file with a container image of two layers.
fn container_image() -> SifFile {
    let mut file = SifFile::default();
    let (lower, upper) = (lower(), upper());
    let manifest = file.image(&[(SQUASHFS_LAYER, &lower), (SQUASHFS_LAYER, &upper)]);
    file.index(&[manifest]);
    file
}

#[test]
fn the_layers_of_a_container_image_are_merged() {
    let image = open(container_image().bytes()).unwrap();
    assert_eq!(image.container(), Some(Container::Sif));
    let merged = expected(&[("kept", "1"), ("new", "2")]);
    assert_eq!(files(&image), merged);

    // As a layer of another stack, and by a path with the name of the image.
    let dir = temp_dir("sif");
    let (path, above) = (dir.path().join("a.sif"), dir.path().join("b.sqsh"));
    std::fs::write(&path, container_image().bytes()).unwrap();
    std::fs::write(&above, squashfs(&[("new", Some("3"))])).unwrap();
    let stack = Image::open_layers([&path, &above], &OpenOptions::default()).unwrap();
    assert_eq!(files(&stack), expected(&[("kept", "1"), ("new", "3")]));
    let named = format!("oci-sif:{}", path.display());
    assert_eq!(files(&Image::open(named).unwrap()), merged);
    let refused = Image::open(format!("oci-sif:{}", above.display())).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("not a SIF file with a container"), "{text}");
}

#[test]
fn layers_may_be_archives() {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in [(".wh.gone", ""), ("new", "tar")] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    let archive = archive.into_inner().unwrap();
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut gzip = vec![0; compressor.gzip_compress_bound(archive.len())];
    let len = compressor.gzip_compress(&archive, &mut gzip).unwrap();
    gzip.truncate(len);
    let mut file = SifFile::default();
    let archive = "application/vnd.oci.image.layer.v1.tar+gzip";
    let manifest = file.image(&[(SQUASHFS_LAYER, &lower()), (archive, &gzip)]);
    let image = open(file.index(&[manifest]).bytes()).unwrap();
    assert_eq!(files(&image), expected(&[("kept", "1"), ("new", "tar")]));
}

#[test]
fn an_image_among_several_is_named() {
    let mut file = SifFile::default();
    let manifests = ["v1", "v2"].map(|name| {
        let layer = squashfs(&[("name", Some(name))]);
        let mut manifest = file.image(&[(SQUASHFS_LAYER, &layer)]);
        manifest["annotations"]["org.opencontainers.image.ref.name"] = name.into();
        manifest
    });
    let dir = temp_dir("sif");
    let path = dir.path().join("two.sif");
    std::fs::write(&path, file.index(&manifests).bytes()).unwrap();
    let digest = manifests[1]["digest"].as_str().unwrap();
    for name in [":v2".to_string(), format!("@{digest}")] {
        let image = Image::open(format!("oci-sif:{}{name}", path.display())).unwrap();
        assert_eq!(files(&image), expected(&[("name", "v2")]));
    }
    let error = Image::open(&path).unwrap_err().to_string();
    assert!(error.contains("an index of 2 manifests"), "{error}");
}

#[test]
fn a_container_image_with_other_bytes_than_its_digests_is_refused() {
    let sound = container_image().bytes();
    let find = |what: &[u8]| sound.windows(what.len()).position(|it| it == what).unwrap();
    let upper = upper();
    let at = find(&upper);
    let mut altered = sound.clone();
    altered[at + upper.len() - 1] ^= 1;
    let manifest = find(br#"{"schemaVersion":2,"config":"#);
    let mut of_manifest = sound.clone();
    of_manifest[manifest + 1] = b' ';
    let mut no_blob = sound.clone();
    // The digest of the lower layer in its descriptor.
    no_blob[4096 + 201 + 10] ^= 1;
    let options = OpenOptions {
        rescue: true,
        ..OpenOptions::default()
    };
    let rescued = Image::from_source(Arc::new(MemorySource::new(altered.clone())), &options);
    assert_eq!(files(&rescued.unwrap()).len(), 2, "only padding differs");
    for (bytes, expected) in [
        (altered, "is damaged: its digest is"),
        (of_manifest, "its digest is"),
        (no_blob, "it has no blob sha256:"),
        (sound[..sound.len() - 4].to_vec(), "the file has"),
    ] {
        let error = open(bytes).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn any_byte_of_the_descriptors_may_be_anything() {
    let sound = container_image().bytes();
    for at in (4096..4096 + 5 * 585).filter(|at| (at - 4096) % 585 < 290) {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = sound.clone();
            bytes[at] = value;
            if let Ok(image) = open(bytes) {
                assert_eq!(
                    files(&image),
                    expected(&[("kept", "1"), ("new", "2")]),
                    "{at}"
                );
            }
        }
    }
}

#[test]
fn layers_that_were_verified_are_not_read_again() {
    let dir = temp_dir("sif");
    let path = dir.path().join("a.sif");
    let sound = container_image().bytes();
    std::fs::write(&path, &sound).unwrap();
    let index = || {
        let metadata = path.metadata().unwrap();
        let cache = dir.path().join("cache");
        KeptIndex::open(&cache, &path, &metadata, &OpenOptions::default()).unwrap()
    };
    let with = |bytes: Vec<u8>, index: KeptIndex| {
        let options = OpenOptions {
            index: Some(Arc::new(index)),
            ..OpenOptions::default()
        };
        Image::from_source(Arc::new(MemorySource::new(bytes)), &options)
    };
    let mut altered = sound.clone();
    let upper = upper();
    let mut parts = sound.windows(upper.len());
    // Padding behind the image.
    altered[parts.position(|it| it == upper).unwrap() + upper.len() - 1] ^= 1;
    assert!(with(altered.clone(), index()).is_err());
    assert!(with(sound, index()).is_ok());
    // The bytes are not those of the file, so only what is kept can let them pass.
    assert!(with(altered.clone(), index()).is_ok());
    std::fs::write(&path, "another file").unwrap();
    assert!(with(altered, index()).is_err());
}

#[test]
fn overlay_partitions_are_merged_above_the_root() {
    let erofs = Writer::Erofs(ErofsOptions::default());
    let first = image(&erofs, &[("new", Some("first"))]);
    let second = squashfs(&[("new", Some("second")), ("gone", None)]);
    let mut file = SifFile::default();
    file.partition(1, 2, &lower());
    file.partition(4, 4, &first);
    let bytes = file.partition(1, 4, &second).bytes();
    let image = open(bytes.clone()).unwrap();
    assert_eq!(image.container(), Some(Container::Sif));
    // Singularity puts the first on top.
    assert_eq!(files(&image), expected(&[("kept", "1"), ("new", "first")]));
    let stack = vec![LayerSource::new(
        "a.sif",
        Arc::new(MemorySource::new(bytes)),
    )];
    let stack = Image::from_layers(stack, &OpenOptions::default()).unwrap();
    assert_eq!(files(&stack), files(&image));
}

#[test]
fn overlays_that_no_driver_reads_are_left_out() {
    let mut ext = vec![0; 8192];
    ext[0x438..0x43a].copy_from_slice(b"\x53\xef");
    let mut file = SifFile::default();
    let image = open(file.partition(1, 2, &lower()).partition(2, 4, &ext).bytes()).unwrap();
    assert_eq!(image.format(), "squashfs");
    assert_eq!(image.container(), Some(Container::Sif));

    // The uppermost layer of a container image is written to: its digest says nothing.
    let ext_layer = "application/vnd.sylabs.image.layer.v1.ext3";
    let mut file = SifFile::default();
    let manifest = file.image(&[(SQUASHFS_LAYER, &lower()), (ext_layer, &ext)]);
    let mut bytes = file.index(&[manifest]).bytes();
    let at = bytes.windows(2).position(|it| it == b"\x53\xef").unwrap();
    bytes[at + 100] = 1;
    assert_eq!(files(&open(bytes).unwrap()).len(), 3);
}
