//! Path resolution and the walk, on sound trees and on endless ones.

use forerun_testkit::MemFsBuilder;
use forerun_vfs::{Error, FollowLast, Limits, NodeId, Walk, canonicalize, resolve};

/// Creates a tree with `a/b/file` and symbolic links of every kind. Returns the file and its
/// directory.
fn tree() -> (MemFsBuilder, NodeId, NodeId) {
    let mut builder = MemFsBuilder::new();
    let file = builder.file("a/b/file", []);
    let dir = builder.dir("a/b");
    for (path, target) in [
        ("to_file", "a/b/file"),
        ("absolute", "/a/b"),
        ("a/up", "../to_file"),
        ("a/above", "../../../../a/b/file"),
        ("self", "self"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("nowhere", "not/there"),
        ("slash", "a/b/file/"),
    ] {
        builder.symlink(path, target.as_bytes());
    }
    (builder, file, dir)
}

#[test]
fn paths() {
    let (builder, file, dir) = tree();
    let image = builder.build();
    let limits = Limits::default();
    let find = |path: &str, last| resolve(&*image.fs, path.as_bytes(), last, &limits);
    for (path, expected) in [
        ("", MemFsBuilder::ROOT),
        ("/", MemFsBuilder::ROOT),
        ("..", MemFsBuilder::ROOT),
        ("a/b", dir),
        ("/a//b/", dir),
        ("./a/./b/../b/file", file),
        ("to_file", file),
        ("absolute/file", file),
        ("a/up", file),
        ("a/above", file),
    ] {
        assert_eq!(find(path, FollowLast::Yes).unwrap(), expected, "{path}");
    }
    assert_ne!(find("to_file", FollowLast::No).unwrap(), file);
    assert_eq!(find("absolute/file", FollowLast::No).unwrap(), file);
    assert_eq!(find("absolute/", FollowLast::No).unwrap(), dir);
    for (path, expected) in [
        ("missing", "not_found"),
        ("a/b/file/x", "not_a_directory"),
        ("a/b/file/", "not_a_directory"),
        ("a/b/file/..", "not_a_directory"),
        ("slash", "not_a_directory"),
        ("self", "symlink_loop"),
        ("ping/x", "symlink_loop"),
        ("nowhere", "not_found"),
    ] {
        assert_eq!(
            find(path, FollowLast::Yes).unwrap_err().kind(),
            expected,
            "{path}"
        );
    }
}

#[test]
fn a_canonical_path_has_no_links_and_no_dots() {
    let (builder, file, dir) = tree();
    let image = builder.build();
    for (path, node, expected) in [
        ("", MemFsBuilder::ROOT, "/"),
        ("../..", MemFsBuilder::ROOT, "/"),
        ("a/b/..//b/.", dir, "/a/b"),
        ("absolute", dir, "/a/b"),
        ("absolute/../b/file", file, "/a/b/file"),
        ("a/up", file, "/a/b/file"),
        ("/a/above", file, "/a/b/file"),
    ] {
        let found = canonicalize(&*image.fs, path.as_bytes(), &Limits::default());
        assert_eq!(found.unwrap(), (node, expected.into()), "{path}");
    }
}

#[test]
fn a_walk_meets_every_name_once_parents_first() {
    let (builder, _, _) = tree();
    let image = builder.build();
    let limits = Limits::default();
    let walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits);
    let paths: Vec<_> = walk
        .map(|entry| String::from_utf8(entry.unwrap().path).unwrap())
        .collect();
    assert_eq!(paths[..4], ["", "a", "a/b", "a/b/file"]);
    assert_eq!(paths.len(), 13);
    assert_eq!(paths.last().unwrap(), "slash");
}

#[test]
fn a_walk_can_leave_a_directory_out() {
    let (builder, _, dir) = tree();
    let image = builder.build();
    let limits = Limits::default();
    let mut walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits);
    let mut paths = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = entry.unwrap();
        if entry.node == dir {
            walk.skip_children();
        }
        paths.push(String::from_utf8(entry.path).unwrap());
    }
    assert!(paths.contains(&"a/b".into()) && !paths.contains(&"a/b/file".into()));
}

#[test]
fn a_directory_below_itself_is_an_error_where_it_is_met_again() {
    let mut builder = MemFsBuilder::new();
    let dir = builder.dir("a/b");
    builder.raw_entry(dir, b"root", MemFsBuilder::ROOT);
    builder.file("z", []);
    let image = builder.build();
    let limits = Limits::default();
    let walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits);
    let (found, errors): (Vec<_>, Vec<_>) = walk.partition(Result::is_ok);
    assert_eq!(found.len(), 5, "the rest is still walked");
    let [Err(failed)] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(failed.path, b"a/b/root");
    let Error::DirectoryLoop { node, path } = &failed.error else {
        panic!("{failed}")
    };
    assert_eq!((*node, &path[..]), (MemFsBuilder::ROOT, &b"a/b/root"[..]));
}

#[test]
fn depth_and_number_of_entries_are_bounded() {
    let mut builder = MemFsBuilder::new();
    builder.dir(&vec!["d"; 50].join("/"));
    for n in 0..100 {
        builder.file(&format!("f{n}"), []);
    }
    let image = builder.build();
    let mut limits = Limits::default();
    limits.depth = 20;
    let walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits);
    let errors: Vec<_> = walk.filter_map(|entry| Some(entry.err()?.error)).collect();
    assert!(
        matches!(errors[..], [Error::Limit { limit: 20, .. }]),
        "{errors:?}"
    );

    let mut limits = Limits::default();
    limits.tree_entries = 70;
    let (found, errors): (Vec<_>, Vec<_>) =
        Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits).partition(Result::is_ok);
    assert!(found.len() <= 71 && !errors.is_empty());
}

#[test]
fn a_walk_reads_long_directories_in_parts() {
    let mut builder = MemFsBuilder::new();
    for n in 0..2000 {
        builder.file(&format!("many/{n:0250}"), []);
        builder.file(&format!("many/{n:0250}.d/x"), []);
    }
    builder.file("z", []);
    let image = builder.build();
    let mut limits = Limits::default();
    let walked = |limits: &Limits| -> Vec<_> {
        let walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, limits);
        walk.map(|entry| entry.unwrap().path).collect()
    };
    let at_once = walked(&limits);
    limits.walk_bytes = 0;
    assert_eq!(walked(&limits), at_once);
    assert_eq!(at_once.len(), 6003);
    // The limit counts the entries of all batches together.
    limits.dir_entries = 2100;
    let walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits);
    let errors: Vec<_> = walk.filter_map(Result::err).collect();
    let [failed] = &errors[..] else {
        panic!("{errors:?}")
    };
    assert_eq!(failed.path, b"many");
    assert!(matches!(failed.error, Error::Limit { limit: 2100, .. }));
}

#[test]
fn a_damaged_node_does_not_end_the_walk() {
    let mut builder = MemFsBuilder::new();
    let damaged = builder.file("b", []);
    builder.file("a", []);
    builder.file("c", []);
    builder.damage(damaged);
    let image = builder.build();
    let limits = Limits::default();
    let walk = Walk::new(&*image.fs, MemFsBuilder::ROOT, &limits);
    let bad: Vec<_> = walk
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.metadata.is_err())
        .map(|entry| entry.node)
        .collect();
    assert_eq!(bad, [damaged]);
}
