//! Features that only newer versions of mkfs.erofs support.

use std::collections::BTreeMap;
use std::fs;

use forerun_io::Limits;
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::temp_dir;
use forerun_vfs::{Device, Error, FileType};

use crate::common::{image_xattrs, reader};
use crate::golden;

#[test]
fn every_image_shows_the_same_tree() {
    let dir = temp_dir("erofs-golden");
    let files = golden::files();
    for (name, bytes) in golden::images() {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let reader = reader(&path, &[]);
        let fs = reader.fs();
        let (mut nodes, mut found) = (BTreeMap::new(), BTreeMap::new());
        for entry in reader.walk(fs.root()) {
            let entry = entry.unwrap();
            let metadata = entry.metadata.unwrap();
            assert_eq!(metadata.mtime.seconds, 1_700_000_000, "{name}");
            if metadata.kind == FileType::Regular {
                let len = metadata.size as usize;
                let data = reader.read(entry.node, 0, len + 1).unwrap();
                found.insert(entry.path.clone(), data.to_vec());
                // Read from the middle, too.
                let data = reader.read(entry.node, metadata.size / 2, len).unwrap();
                assert_eq!(&data[..], &found[&entry.path][len / 2..], "{name}");
            }
            nodes.insert(entry.path, (entry.node, metadata));
        }
        assert!(found == files, "{name}: {:?}", found.keys());
        assert_eq!(nodes.len(), files.len() + 5, "{name}");
        let node = |path: &str| &nodes[path.as_bytes()];
        assert_eq!(node("noise").0, node("hard").0, "{name}");
        assert_eq!(node("noise").1.nlink, 2, "{name}");
        assert_eq!(node("dir").1.nlink, 3, "{name}");
        assert_eq!(fs.read_link(node("link").0).unwrap(), b"dir/sub");
        let null = Device { major: 1, minor: 3 };
        assert_eq!(node("dir/null").1.device, null, "{name}");
        let xattr = |name: &str, value: &[u8]| BTreeMap::from([(name.into(), value.to_vec())]);
        let two = xattr("user.org.example.two", &[b'2'; 40]);
        let expected = BTreeMap::from([
            (b"dir".to_vec(), xattr("trusted.overlay.opaque", b"y")),
            (b"hard".to_vec(), two.clone()),
            (b"noise".to_vec(), two),
            (b"text".to_vec(), xattr("user.org.example.one", b"1")),
        ]);
        assert_eq!(image_xattrs(fs), expected, "{name}");
        check_filesystem(fs, &Limits::default());
    }
}

#[test]
fn metadata_that_lies_apart_is_named() {
    let dir = temp_dir("erofs-golden");
    for (name, bytes) in golden::images() {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let reader = reader(&path, &[]);
        let layout = reader.fs().metadata_layout();
        let ranges = layout.ranges();
        if name.starts_with("metabox") || name == "zone" {
            assert!(!ranges.is_empty(), "{name}");
        }
    }
}

/// A packed inode that refers to itself would never end.
#[test]
fn a_packed_inode_in_itself() {
    let (_, mixed) = golden::images()
        .into_iter()
        .find(|(name, _)| *name == "mixed")
        .unwrap();
    let image = golden::without_checksum(&mixed);
    let dir = temp_dir("erofs-golden");
    let path = dir.path().join("image");
    fs::write(&path, &image).unwrap();
    let sound = reader(&path, &[]);
    let text = sound.fs().lookup(sound.fs().root(), b"text").unwrap();
    let text = text.unwrap();
    let mut image = image;
    image[1024 + 0x60..1024 + 0x68].copy_from_slice(&text.0.to_le_bytes());
    fs::write(&path, &image).unwrap();
    let looped = reader(&path, &[]);
    let error = looped.read(text, 0, 10).err().unwrap();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("a fragment of the packed inode is in the packed inode itself"),
        "{text}"
    );
    // No packed inode at all.
    image[1024 + 0x60..1024 + 0x68].fill(0);
    fs::write(&path, &image).unwrap();
    let error = reader(&path, &[]).read(forerun_vfs::NodeId(text_node(&sound)), 0, 10);
    let text = error.err().unwrap().to_string();
    assert!(text.contains("the image has no packed inode"), "{text}");
}

fn text_node(reader: &forerun_engine::Reader) -> u64 {
    let fs = reader.fs();
    fs.lookup(fs.root(), b"text").unwrap().unwrap().0
}

#[test]
fn a_metabox_in_itself() {
    let (_, metabox) = golden::images()
        .into_iter()
        .find(|(name, _)| *name == "metabox")
        .unwrap();
    let mut image = golden::without_checksum(&metabox);
    let nid = 1024 + 128;
    image[nid + 7] |= 0x80;
    let with =
        forerun_vfs::OpenWith::new(std::sync::Arc::new(forerun_io::MemorySource::new(image)));
    let error = forerun_erofs::Erofs::open(with).err().unwrap().to_string();
    assert!(error.contains("has inline data"), "{error}");
}
