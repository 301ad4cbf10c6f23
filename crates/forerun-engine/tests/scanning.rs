//! What is taken of a host directory, and what is left out.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use forerun_engine::build::{BuildError, NodeKind, Patterns, ScanOptions, Tree, scan};
use forerun_testkit::temp_dir;

fn names(tree: &Tree) -> Vec<String> {
    let (mut names, mut pending) = (Vec::new(), vec![(Tree::ROOT, String::new())]);
    while let Some((dir, path)) = pending.pop() {
        for (name, node) in tree.children(dir) {
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            pending.push((node, path.clone()));
            names.push(path);
        }
    }
    names.sort();
    names
}

fn sample(dir: &Path) {
    for path in ["src/a.c", "src/a.o", "src/deep/b.o", "doc/a.txt"] {
        fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), path).unwrap();
    }
}

#[test]
fn patterns_leave_out() {
    let dir = temp_dir("scan");
    sample(dir.path());
    let tree = |patterns: &[&str]| {
        let exclude = Patterns::new(patterns).unwrap();
        names(
            &scan(
                dir.path(),
                &ScanOptions {
                    exclude,
                    ..ScanOptions::default()
                },
            )
            .unwrap(),
        )
    };
    assert_eq!(
        tree(&["*.o"]),
        ["/doc", "/doc/a.txt", "/src", "/src/a.c", "/src/deep"]
    );
    assert_eq!(
        tree(&["src/*.o", "doc"]),
        ["/src", "/src/a.c", "/src/deep", "/src/deep/b.o"]
    );
    assert_eq!(tree(&["/src", "/a.txt"]), ["/doc", "/doc/a.txt"]);
}

#[test]
fn the_output_is_left_out_by_identity() {
    let dir = temp_dir("scan");
    sample(dir.path());
    let output = fs::metadata(dir.path().join("src/a.c")).unwrap();
    fs::hard_link(dir.path().join("src/a.c"), dir.path().join("same")).unwrap();
    let skip = vec![(output.dev(), output.ino())];
    let tree = scan(
        dir.path(),
        &ScanOptions {
            skip,
            ..ScanOptions::default()
        },
    )
    .unwrap();
    assert!(
        !names(&tree)
            .iter()
            .any(|name| name == "/src/a.c" || name == "/same")
    );
}

#[test]
fn metadata_is_kept_and_times_are_clamped() {
    let dir = temp_dir("scan");
    sample(dir.path());
    let file = dir.path().join("src/a.c");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).unwrap();
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(500, 7));
    fs::File::open(&file).unwrap().set_times(times).unwrap();
    xattr::set(&file, "user.note", b"value").unwrap();
    let options = ScanOptions {
        xattrs: true,
        latest: Some(1_000_000_000),
        ..ScanOptions::default()
    };
    let tree = scan(dir.path(), &options).unwrap();
    let src = tree.child(Tree::ROOT, b"src").unwrap();
    let node = tree.node(tree.child(src, b"a.c").unwrap());
    assert_eq!(
        (node.mode, node.mtime.seconds, node.mtime.nanoseconds),
        (0o4750, 500, 7)
    );
    assert_eq!(node.xattrs[&b"user.note"[..]], b"value");
    let newer = tree.node(tree.child(src, b"a.o").unwrap());
    assert_eq!(
        (newer.mtime.seconds, newer.mtime.nanoseconds),
        (1_000_000_000, 0)
    );
    let NodeKind::File { len, content } = &newer.kind else {
        panic!("a file")
    };
    let mut bytes = String::new();
    content
        .open(*len)
        .unwrap()
        .read_to_string(&mut bytes)
        .unwrap();
    assert_eq!(bytes, "src/a.o");
}

#[test]
fn a_file_that_became_a_link_meanwhile_is_not_followed() {
    let dir = temp_dir("scan");
    fs::write(dir.path().join("file"), "before").unwrap();
    let tree = scan(dir.path(), &ScanOptions::default()).unwrap();
    fs::remove_file(dir.path().join("file")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("file")).unwrap();
    let node = tree.node(tree.child(Tree::ROOT, b"file").unwrap());
    let NodeKind::File { len, content } = &node.kind else {
        panic!("a file")
    };
    assert!(content.open(*len).is_err());
}

#[test]
fn what_is_no_directory_is_refused_by_name() {
    let dir = temp_dir("scan");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [&file, &dir.path().join("missing")] {
        let error = scan(path, &ScanOptions::default()).unwrap_err();
        assert!(
            matches!(&error, BuildError::Host { path: named, .. } if named == path),
            "{error}"
        );
    }
}
