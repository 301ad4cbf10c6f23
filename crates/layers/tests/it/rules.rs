//! The rules of a merge, one by one.

use std::ops::ControlFlow;

use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{DirCursor, FileSystem, FileType, NodeId};

use crate::common::{add, layer, merge};

/// Merges layers of lines, the lowest first, and compares the tree.
fn check(layers: &[&[&str]], expected: &[&str]) {
    let merged = merge(layers.iter().map(|lines| layer(lines)));
    assert_eq!(merged.lines(), expected, "{layers:?}");
}

#[test]
fn upper_entries_replace_lower_ones_and_directories_merge() {
    check(
        &[&["a=low", "d/x=1", "d/y=2"], &["a=up", "d/y=3", "d/z>x"]],
        &["a=up", "d/", "d/x=1", "d/y=3", "d/z>x"],
    );
    check(&[&["a/b=1"], &["a=file"]], &["a=file"]);
    check(&[&["a=file"], &["a/b=1"]], &["a/", "a/b=1"]);
    // A file between two directories hides the lower one.
    check(&[&["a/low=1"], &["a=file"], &["a/up=2"]], &["a/", "a/up=2"]);
    check(&[&["a=1"], &[], &["b=2"]], &["a=1", "b=2"]);
}

#[test]
fn a_single_layer_is_shown_without_its_markers() {
    check(
        &[&[
            "a=1",
            ".wh.a=",
            ".wh..wh..opq=",
            "d/gone!",
            "d/.wh.x=",
            "d/e/f=2",
        ]],
        &["a=1", "d/", "d/e/", "d/e/f=2"],
    );
}

#[test]
fn whiteouts_hide_entries_of_lower_layers_only() {
    check(&[&["a=1", "b=2"], &[".wh.a="]], &["b=2"]);
    check(&[&["a/b=1"], &["a!"]], &[]);
    check(&[&["d/a=1", "d/b=2"], &["d/.wh.a=", "d/b!"]], &["d/"]);
    // An entry of the layer of its whiteout is shown, and the lower entry is not.
    check(&[&["a=low"], &["a=up", ".wh.a="]], &["a=up"]);
    check(&[&["d/low=1"], &["d/up=2", ".wh.d="]], &["d/", "d/up=2"]);
    // A higher layer may bring the name back.
    check(&[&["a=1"], &[".wh.a="], &["a=3"]], &["a=3"]);
    check(
        &[&["d/low=1"], &[".wh.d="], &["d/top=3"]],
        &["d/", "d/top=3"],
    );
    // A whiteout of a missing entry.
    check(&[&["a=1"], &[".wh.b=", "c!"]], &["a=1"]);
}

#[test]
fn opaque_directories_hide_all_that_is_below_them() {
    for opaque in ["d/.wh..wh..opq=", "d/@y"] {
        check(
            &[&["d/low=1", "d/e/x=1"], &[opaque, "d/e/y=2"]],
            &["d/", "d/e/", "d/e/y=2"],
        );
        check(
            &[&["d/low=1"], &[opaque, "d/mid=2"], &["d/top=3"]],
            &["d/", "d/mid=2", "d/top=3"],
        );
    }
    check(&[&["d/low=1"], &["d/@n"]], &["d/", "d/low=1"]);
    check(&[&["a=1"], &[".wh..wh..opq=", "b=2"]], &["b=2"]);
    let mut user = layer(&["d/up=2"]);
    let dir = user.dir("d");
    user.xattr(dir, b"user.overlay.opaque", b"y");
    let merged = merge([layer(&["d/low=1"]), user]);
    assert_eq!(merged.lines(), ["d/", "d/up=2"]);
}

#[test]
fn the_metadata_of_a_merged_directory_is_that_of_the_uppermost() {
    let mut low = layer(&["d/a=1"]);
    let dir = low.dir("d");
    low.metadata(dir, |metadata| (metadata.mode, metadata.nlink) = (0o700, 5));
    low.xattr(dir, b"user.low", b"1");
    let mut up = layer(&["d/b=2"]);
    let dir = up.dir("d");
    up.metadata(dir, |metadata| (metadata.mode, metadata.uid) = (0o1777, 7));
    up.xattr(dir, b"user.up", b"2");
    up.xattr(dir, b"trusted.overlay.impure", b"y");
    up.xattr(dir, b"trusted.overlay.overlay.opaque", b"y");
    let merged = merge([low, up]);
    let node = merged.node("d");
    let metadata = merged.fs.metadata(node).unwrap();
    assert_eq!((metadata.mode, metadata.uid), (0o1777, 7));
    assert_eq!(metadata.nlink, 1, "as overlayfs answers");
    let mut names = Vec::new();
    let mut note = |name: &[u8], _: &[u8]| names.push(String::from_utf8_lossy(name).into_owned());
    merged.fs.xattrs(node, &mut note).unwrap();
    assert_eq!(names, ["user.up", "trusted.overlay.opaque"]);
    assert_eq!(merged.lines(), ["d/", "d/a=1", "d/b=2"]);
}

#[test]
fn ids_are_the_same_whatever_was_looked_at_before() {
    let layers = || {
        [
            layer(&["a/b/c/low=1", "x/y/low=1", "one/two=1"]),
            layer(&["a/b/c/up=2", "x/y/up=2"]),
        ]
    };
    let (one, other) = (merge(layers()), merge(layers()));
    one.tree();
    for path in ["a", "a/b/c", "x/y", "one/two", "a/b/c/low"] {
        assert_eq!(one.node(path), other.node(path), "{path}");
    }
    // A restarted server is asked for a directory that it has not looked up.
    let fresh = merge(layers());
    let dir = one.node("a/b/c");
    let mut names = Vec::new();
    let listed = fresh.fs.read_dir(dir, DirCursor::START, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    });
    listed.unwrap();
    assert_eq!(names, [b"up".to_vec(), b"low".to_vec()]);
}

#[test]
fn a_long_listing_in_small_parts_shows_each_name_once() {
    let (mut low, mut mid, mut up) = (
        MemFsBuilder::new(),
        MemFsBuilder::new(),
        MemFsBuilder::new(),
    );
    for n in 0..600 {
        low.file(&format!("d/{n:03}"), [Piece::Zero(1)]);
        if n % 2 == 0 {
            mid.file(&format!("d/{n:03}"), [Piece::Zero(2)]);
        }
        if n % 3 == 0 {
            up.file(&format!("d/.wh.{n:03}"), [Piece::Zero(0)]);
        }
    }
    add(&mut up, "d/new=1");
    let merged = merge([low, mid, up]);
    let dir = merged.node("d");
    let (mut from, mut names) = (DirCursor::START, Vec::new());
    loop {
        let before = names.len();
        let listed = merged.fs.read_dir(dir, from, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            from = entry.next;
            if (names.len() - before) < 7 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        listed.unwrap();
        if names.len() == before {
            break;
        }
    }
    assert_eq!(names.len(), 401);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 401);
}

#[test]
fn problems_and_errors_name_their_layer() {
    let mut up = layer(&["d/.wh...=", "d/.wh.=", "d/.wh.ok=", "e/@x"]);
    let moved = up.dir("moved");
    up.xattr(moved, b"trusted.overlay.redirect", b"/other");
    let merged = merge([layer(&["d/a=1", "e/a=1", "moved/a=1"]), up]);
    let mut found = Vec::new();
    for path in ["d", "e", "moved"] {
        let mut note = |problem: forerun_vfs::Problem| {
            found.push((problem.fatal, problem.error.to_string()));
        };
        merged.fs.check(Some(merged.node(path)), &mut note).unwrap();
    }
    let climbs = |name: &str| {
        let text = format!(
            "damaged memfs image layer1: node 2, offset 0x0: the whiteout {name:?} hides nothing: what \
             follows .wh. is not a valid name"
        );
        (false, text)
    };
    let opaque = "damaged memfs image layer1: node 6, offset 0x0: the attribute overlay.opaque of overlayfs is \
                  not followed";
    let expected = [climbs(".wh..."), climbs(".wh."), (true, opaque.to_string())];
    assert_eq!(found, expected);
    for (path, expected) in [
        ("e", "not supported: layer1: directory"),
        (
            "moved",
            "damaged memfs image layer1: node 7, offset 0x0: the overlayfs redirect",
        ),
    ] {
        let error = merged.fs.lookup(merged.node(path), b"a").unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn volumes_are_summed_up() {
    let merged = merge([layer(&["a=1"]), layer(&["b=2"])]);
    let volume = merged.fs.volume();
    assert_eq!(volume.format, "layers");
    assert_eq!(volume.image_len, 2 * 513);
    let details = [
        ("layers", "2".to_string()),
        ("lowest first", "layer0 (memfs), layer1 (memfs)".to_string()),
    ];
    assert_eq!(volume.details, details);
    let described = merged.fs.describe(Some(merged.fs.root())).unwrap();
    assert_eq!(described[0], ("layer", "layer1, over layer0".to_string()));
    assert_eq!(
        merged.fs.metadata(merged.node("b")).unwrap().kind,
        FileType::Regular
    );
    let unknown = merged.fs.metadata(NodeId(5 << 53 | 1)).unwrap_err();
    assert_eq!(unknown.kind(), "stale_node");
}
