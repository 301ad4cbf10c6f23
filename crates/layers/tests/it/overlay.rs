//! Directories and files that overlayfs moved or changed without copying their contents.

use std::ops::ControlFlow;

use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{DirCursor, Error, FileSystem, FileType, NodeId, Objects, Result};

use crate::common::{Merged, layer, merge};

/// Creates a layer from lines, each with an attribute of overlayfs for its node: `LINE NAME VALUE`.
/// A file has as many zeros as its line has characters after `=`.
fn upper(lines: &[&str]) -> MemFsBuilder {
    let mut builder = MemFsBuilder::new();
    for line in lines {
        let mut words = line.split(' ');
        let node = match words.next().unwrap().split_once('=') {
            Some((path, contents)) => {
                builder.file(path, [Piece::Zero(contents.len().try_into().unwrap())])
            }
            None => builder.dir(line.split(' ').next().unwrap()),
        };
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            builder.xattr(node, name.as_bytes(), value.trim_matches('-').as_bytes());
        }
    }
    builder
}

fn read(merged: &Merged, path: &str) -> Result<()> {
    let node = merged.node(path);
    merged
        .fs
        .map(node, 0..u64::MAX, &mut |_| ControlFlow::Continue(()))
}

const METACOPY: &str = "trusted.overlay.metacopy -";

#[test]
fn a_redirected_directory_has_the_entries_of_the_lower_one() {
    for (up, expected) in [
        (
            "new trusted.overlay.redirect old",
            ["new/a=1", "new/sub/", "new/sub/b=2", "old/"].as_slice(),
        ),
        (
            "new user.overlay.redirect old",
            &["new/a=1", "new/sub/", "new/sub/b=2", "old/"],
        ),
        ("deep/new trusted.overlay.redirect /old", &["deep/new/a=1"]),
        (
            "deep/new trusted.overlay.redirect /old/sub",
            &["deep/new/b=2"],
        ),
        // The directory is opaque, so overlayfs does not look further.
        (
            "new trusted.overlay.redirect old trusted.overlay.opaque y",
            &["new/"],
        ),
    ] {
        let merged = merge([layer(&["old/a=1", "old/sub/b=2"]), upper(&[up])]);
        let lines = merged.lines();
        for line in expected {
            assert!(lines.contains(&line.to_string()), "{up}: {lines:?}");
        }
        assert_eq!(
            lines.iter().any(|line| line.starts_with("new/a")),
            expected[0] == "new/a=1"
        );
    }
}

#[test]
fn redirects_of_several_layers_make_one_path() {
    let low = || layer(&["a/b/file=1", "a/b/c/deep=2", "hidden/x=3"]);
    // Layer 1 moves /a to /m, layer 2 moves /m/b to /n, layer 3 moves /n/c to /n/d.
    let moved = || {
        [
            upper(&["m trusted.overlay.redirect /a"]),
            upper(&["n trusted.overlay.redirect /m/b"]),
            upper(&["n/d trusted.overlay.redirect c"]),
        ]
    };
    let [one, two, three] = moved();
    let merged = merge([low(), one, two, three]);
    for line in ["n/file=1", "n/d/deep=2", "n/c/deep=2", "m/b/file=1"] {
        assert!(
            merged.lines().contains(&line.to_string()),
            "{line}: {:?}",
            merged.lines()
        );
    }
    // A whiteout, or an opaque directory, between the layers ends the path.
    for between in [
        &["a/.wh.b="][..],
        &["a/b!"],
        &["a/@y"],
        &[".wh..wh..opq="],
        &["a=file"],
    ] {
        let [one, two, _] = moved();
        let merged = merge([low(), layer(between), one, two]);
        let node = merged.node("n");
        let mut names = 0;
        let listed = merged.fs.read_dir(node, DirCursor::START, &mut |_| {
            names += 1;
            ControlFlow::Continue(())
        });
        let error = listed.unwrap_err().to_string();
        assert!(
            error.contains("names nothing in the lower layers"),
            "{between:?}: {error}"
        );
        assert_eq!(names, 0, "{between:?}");
    }
}

#[test]
fn a_file_without_contents_has_those_of_the_lower_layer() {
    for (up, path) in [
        (format!("f=123 {METACOPY}"), "f"),
        ("f=123 user.overlay.metacopy -".to_string(), "f"),
        (format!("g=123 {METACOPY} trusted.overlay.redirect f"), "g"),
        (
            format!("d/g=123 {METACOPY} trusted.overlay.redirect /f"),
            "d/g",
        ),
        (
            format!("n/e=123 {METACOPY} trusted.overlay.redirect /d/e"),
            "n/e",
        ),
        (
            "f=123 trusted.overlay.metacopy \0\u{4}\0\0".to_string(),
            "f",
        ),
    ] {
        // Once found by name, and once only listed.
        for is_looked_up in [true, false] {
            let merged = merge([layer(&["f=low", "d/e=low"]), upper(&[&up])]);
            if is_looked_up {
                read(&merged, path).unwrap();
            }
            let expected = format!("{path}=low");
            assert!(
                merged.lines().contains(&expected),
                "{up}: {:?}",
                merged.lines()
            );
        }
    }
    // Through a layer that has only the metadata as well.
    let middle = format!("g=123 {METACOPY} trusted.overlay.redirect f");
    let top = format!("h=123 {METACOPY} trusted.overlay.redirect g");
    let merged = merge([layer(&["f=low"]), upper(&[&middle]), upper(&[&top])]);
    assert!(merged.lines().contains(&"h=low".to_string()));
    // In a directory that was moved.
    let file = format!("new/f=123 {METACOPY}");
    let merged = merge([
        layer(&["old/f=low"]),
        upper(&["new trusted.overlay.redirect old", &file]),
    ]);
    assert!(merged.lines().contains(&"new/f=low".to_string()));
}

#[test]
fn a_file_whose_contents_are_missing_is_an_error_for_its_reader_only() {
    let file = format!("f=123 {METACOPY}");
    let far = format!("f=123 {METACOPY} trusted.overlay.redirect /gone");
    for (below, up, expected) in [
        (&["a=1"][..], &file, "no lower layer has them"),
        (&["f/x=1"], &file, "no lower layer has them"),
        (&["f>a"], &file, "no lower layer has them"),
        (&["f=longer"], &file, "have 6 bytes instead of 3"),
        (&["f=low"], &far, "no lower layer has them"),
    ] {
        let merged = merge([layer(below), upper(&[up])]);
        let node = merged.node("f");
        let metadata = merged.fs.metadata(node).unwrap();
        assert_eq!((metadata.kind, metadata.size), (FileType::Regular, 3));
        let error = read(&merged, "f").unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert!(error.to_string().contains(expected), "{below:?}: {error}");
        assert!(merged.fs.backing(node).is_err());
    }
    // In the lowest layer, the driver reports the error.
    let merged = merge([upper(&[&file]), layer(&[])]);
    let error = read(&merged, "f").unwrap_err().to_string();
    assert!(
        error.contains("its contents are in a lower layer"),
        "{error}"
    );
    // A whiteout above the contents.
    let merged = merge([layer(&["f=low"]), layer(&[".wh.f="]), upper(&[&file])]);
    assert!(read(&merged, "f").is_err());
}

#[test]
fn values_that_linux_refuses_are_errors_of_their_reader() {
    for value in ["a/b", "/", "..", "/a/../b", "//a"] {
        let merged = merge([
            layer(&["d/low=1", "a/b/x=1"]),
            upper(&[&format!("d trusted.overlay.redirect {value}")]),
        ]);
        let error = merged.fs.lookup(merged.node("d"), b"low").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("is neither a name nor an absolute path"),
            "{value}: {error}"
        );
    }
    let merged = merge([
        layer(&["f=low"]),
        upper(&["f=123 trusted.overlay.metacopy unknown"]),
    ]);
    assert!(read(&merged, "f").is_err());
}

#[test]
fn a_server_that_was_started_again_finds_moved_directories_and_files_by_their_ids() {
    let file = format!("d/new/f=123 {METACOPY} trusted.overlay.redirect /other");
    let layers = || {
        [
            layer(&["old/sub/a=1", "other=low"]),
            upper(&["d/new trusted.overlay.redirect /old", &file]),
        ]
    };
    let one = merge(layers());
    let ids: [NodeId; 3] = ["d/new", "d/new/sub", "d/new/f"].map(|path| one.node(path));
    for id in &ids[..2] {
        let fresh = merge(layers());
        let mut names = 0;
        let listed = fresh.fs.read_dir(*id, DirCursor::START, &mut |_| {
            names += 1;
            ControlFlow::Continue(())
        });
        listed.unwrap();
        assert!(names > 0);
    }
    let fresh = merge(layers());
    let mut extents = 0;
    let mapped = fresh.fs.map(ids[2], 0..3, &mut |_| {
        extents += 1;
        ControlFlow::Continue(())
    });
    mapped.unwrap();
    assert_eq!(extents, 1);
}
