//! Hostile layers: too many, with ids that do not fit, with directories in loops, damaged.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_layers::{LAYERS_MAX, Layer, Layers};
use forerun_testkit::MemFsBuilder;
use forerun_vfs::{
    BlobId, Capabilities, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Layout, Merged,
    Metadata, NodeId, Region, Result, Timestamp, VolumeInfo, exercise,
};

use crate::common::{layer, merge, named};

fn one(name: &str) -> Layer {
    let image = layer(&["a=1"]).build();
    Layer {
        note: None,
        name: name.into(),
        fs: image.driver(),
        image: Arc::new(image.source.clone()),
    }
}

#[test]
fn the_number_of_layers_is_bounded() {
    let layers = |count| (0..count).map(|_| one("x")).collect::<Vec<_>>();
    let limits = Limits::default();
    let merged = Layers::new(layers(LAYERS_MAX), &limits).unwrap();
    let found = merged.lookup(merged.root(), b"a").unwrap().unwrap();
    assert_eq!(merged.metadata(found).unwrap().size, 1);
    let error = Layers::new(layers(LAYERS_MAX + 1), &limits).err().unwrap();
    assert_eq!(
        error.to_string(),
        "number of layers exceeds the limit of 1024"
    );
    let error = Layers::new(Vec::new(), &limits).err().unwrap();
    assert_eq!(error.to_string(), "not supported: a stack without layers");
}

/// A filesystem with the largest possible ids and cursors.
struct Far {
    volume: VolumeInfo,
}

impl Far {
    const ROOT: NodeId = NodeId(1);
    const FILE: NodeId = NodeId(1 << 53);
}

impl FileSystem for Far {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        Self::ROOT
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let kind = match node {
            Self::ROOT => FileType::Directory,
            Self::FILE => FileType::Regular,
            node => return Err(Error::StaleNode(node)),
        };
        Ok(Metadata {
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 1,
            mtime: Timestamp::default(),
            device: forerun_vfs::Device::default(),
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        match (dir, name) {
            (Self::ROOT, b"file") => Ok(Some(Self::FILE)),
            (Self::ROOT, _) => Ok(None),
            _ => Err(Error::NotADirectory),
        }
    }

    fn read_dir(
        &self,
        _dir: NodeId,
        _from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _flow = visit(DirEntry {
            name: b"file",
            node: Self::FILE,
            kind: FileType::Regular,
            next: DirCursor(u64::MAX),
        });
        Ok(())
    }

    fn read_link(&self, _node: NodeId) -> Result<Vec<u8>> {
        Err(Error::NotASymlink)
    }

    fn map(
        &self,
        _node: NodeId,
        _range: Range<u64>,
        _visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Far {
    /// Visits regions that reach past the end.
    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        for range in [0..100, 400..u64::MAX] {
            if visit(Region::metadata("far", range)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn far(folds_case: bool) -> Layer {
    far_of(folds_case, 512)
}

fn far_of(folds_case: bool, image_len: u64) -> Layer {
    let mut volume = VolumeInfo::new("far", image_len, 512);
    volume.folds_case = folds_case;
    Layer {
        note: None,
        name: "far".into(),
        fs: Arc::new(Far { volume }),
        image: Arc::new(MemorySource::new(vec![0; 512])),
    }
}

#[test]
fn layers_of_more_than_64_bits_together_are_refused() {
    let limits = Limits::default();
    for (lens, is_ok) in [
        ([u64::MAX - 512, 512], true),
        ([u64::MAX - 512, 513], false),
        ([u64::MAX, u64::MAX], false),
    ] {
        let layers = lens.map(|len| far_of(false, len)).into_iter().collect();
        let merged = Layers::new(layers, &limits);
        assert_eq!(merged.is_ok(), is_ok, "{lens:?}");
        let Err(error) = merged else { continue };
        assert!(
            error.to_string().contains("length of all layers"),
            "{error}"
        );
    }
}

#[test]
fn an_id_beyond_53_bits_is_an_error_and_does_not_wrap() {
    for layers in [vec![far(false)], vec![one("low"), far(false)]] {
        let merged = Layers::new(layers, &Limits::default()).unwrap();
        let error = merged.lookup(merged.root(), b"file").unwrap_err();
        assert!(error.to_string().contains("more than 53 bits"), "{error}");
        let all = &mut |_: DirEntry<'_>| ControlFlow::Continue(());
        let error = merged.read_dir(merged.root(), DirCursor::START, all);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("more than 53 bits"), "{error}");
    }
}

#[test]
fn a_layer_that_ignores_case_is_refused() {
    let error = Layers::new(vec![one("low"), far(true)], &Limits::default());
    assert_eq!(
        error.err().unwrap().to_string(),
        "not supported: far: a layer whose names ignore case"
    );
}

/// Creates a layer whose directory `d` contains itself as `d`, after `length` steps.
fn circle(length: usize) -> MemFsBuilder {
    let mut builder = MemFsBuilder::new();
    let path = vec!["d"; length].join("/");
    let (first, last) = (builder.dir("d"), builder.dir(&path));
    builder.raw_entry(last, b"d", first);
    builder
}

#[test]
fn directories_in_circles_end() {
    let limits = exercise::limits();
    for (low, up) in [(1, 1), (2, 3), (3, 2), (1, 4), (0, 3), (3, 0)] {
        let layers = [low, up].map(|length| match length {
            0 => layer(&["d/d/d/d/d/d/a=1"]),
            length => circle(length),
        });
        let merged = merge(layers);
        let errors = exercise::all(&*merged.fs, &limits);
        let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let is_known =
            |text: &String| text.contains("lies below itself") || text.contains("has two paths");
        assert!(text.iter().any(is_known), "{low} {up}: {text:?}");
        // An unknown id of a merged directory is searched for in all directories.
        let error = merged.fs.metadata(NodeId(1 << 63 | 1 << 53 | 77));
        assert_eq!(error.unwrap_err().kind(), "stale_node");
    }
}

#[test]
fn damage_in_one_layer_is_an_error_that_names_it() {
    let mut up = layer(&["d/b=2", "e/x=1"]);
    let dir = up.dir("d");
    up.damage(dir);
    let merged = merge([layer(&["d/a=1", "e/y=2"]), up]);
    let expected = "damaged memfs image layer1: node 2, offset 0x0: damaged on purpose";
    let looked_up = merged.fs.lookup(merged.fs.root(), b"d").unwrap_err();
    assert_eq!(looked_up.to_string(), expected);
    let found = merged.node("e");
    assert!(merged.fs.lookup(found, b"x").unwrap().is_some());
    let mut seen = Vec::new();
    let listed = merged
        .fs
        .read_dir(merged.fs.root(), DirCursor::START, &mut |entry| {
            seen.push(entry.name.to_vec());
            ControlFlow::Continue(())
        });
    listed.unwrap();
    assert_eq!(seen, [b"d".to_vec(), b"e".to_vec()]);
}

#[test]
fn a_damaged_directory_of_a_lower_layer_ends_no_other_listing() {
    let mut low = layer(&["d/a=1", "e/y=2", "f/z=3"]);
    let dir = low.dir("e");
    low.damage(dir);
    let merged = merge([low, layer(&["d/b=2", "e/x=1", "f/w=4"])]);
    let list = |dir| {
        let mut seen = Vec::new();
        let listed = merged.fs.read_dir(dir, DirCursor::START, &mut |entry| {
            seen.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        });
        (seen, listed.map_err(|error| error.to_string()))
    };
    let (seen, listed) = list(merged.fs.root());
    assert_eq!(seen, ["d", "e", "f"]);
    listed.unwrap();
    let (seen, listed) = list(merged.node("f"));
    assert_eq!(seen, ["w", "z"]);
    listed.unwrap();
    let (seen, listed) = list(merged.node("e"));
    assert_eq!(seen, ["x"]);
    let told = listed.unwrap_err();
    assert!(
        told.contains("layer0") && told.contains("damaged on purpose"),
        "{told}"
    );
    let errors = exercise::all(&*merged.fs, &exercise::limits());
    assert!(!errors.is_empty());
}

#[test]
fn names_that_do_not_fit_into_memory_are_told() {
    let (mut low, mut up) = (MemFsBuilder::new(), MemFsBuilder::new());
    for n in 0..200 {
        low.file(&format!("{n}"), []);
        up.file(&format!("{n}"), []);
    }
    let images = [low, up].map(MemFsBuilder::build);
    let layers = images.map(
        |image| -> (Arc<dyn FileSystem>, Arc<dyn forerun_io::ReadAt>) {
            (image.driver(), Arc::new(image.source.clone()))
        },
    );
    let mut limits = Limits::default();
    limits.walk_bytes = 4096;
    let merged = Layers::new(named(layers.into()), &limits).unwrap();
    let all = &mut |_: DirEntry<'_>| ControlFlow::Continue(());
    let error = merged.read_dir(merged.root(), DirCursor::START, all);
    assert_eq!(
        error.unwrap_err().to_string(),
        "memory for the walk, in bytes, exceeds the limit of 4096"
    );
}

#[test]
fn regions_of_layers_follow_each_other_and_stay_within_their_images() {
    let merged = Layers::new(vec![far(false), far(false)], &Limits::default()).unwrap();
    let regions = |most: usize| {
        let mut seen = Vec::new();
        let mut visit = |region: Region| {
            seen.push(region.range);
            if seen.len() < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        merged.regions(&mut visit).unwrap();
        seen
    };
    let all = [0..100, 400..512, 512..612, 912..1024];
    assert_eq!(regions(9), all);
    for most in 1..4 {
        assert_eq!(regions(most), all[..most]);
    }
    assert_eq!(merged.image_range(BlobId::IMAGE), Some(0..512));
    assert_eq!(merged.image_range(BlobId(1)), Some(512..1024));
    // A device of the lowest layer.
    assert_eq!(merged.image_range(BlobId(2)), None);
    assert_eq!(merged.volume().image_len, 1024);
}
