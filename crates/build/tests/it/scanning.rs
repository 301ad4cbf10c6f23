//! Scans of a host directory: which files are included and excluded.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_build::{
    BuildError, NamedSource, NodeKind, Patterns, ScanOptions, Tree, scan, scan_sources,
};
use forerun_testkit::temp_dir;
use rustix::fs::CWD;

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

fn content(tree: &Tree, path: &[&str]) -> std::io::Result<Vec<u8>> {
    let node = path.iter().fold(Tree::ROOT, |dir, name| {
        let mut children = tree.children(dir);
        let found = children.find(|(child, _)| *child == name.as_bytes());
        found.unwrap().1
    });
    let NodeKind::File { len, content } = &tree.node(node).kind else {
        panic!("{path:?} is no file");
    };
    let mut bytes = Vec::new();
    content.open(*len)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn a_file_that_was_replaced_after_the_scan_is_not_read() {
    let dir = temp_dir("scan");
    let tree_dir = dir.path().join("tree");
    let secret = dir.path().join("secret");
    fs::create_dir_all(&secret).unwrap();
    fs::write(secret.join("file"), "secret").unwrap();
    let scanned = || {
        let _there_may_be_none = fs::remove_dir_all(&tree_dir);
        fs::create_dir_all(tree_dir.join("a/b")).unwrap();
        fs::write(tree_dir.join("a/b/file"), "public").unwrap();
        scan(&tree_dir, &ScanOptions::default()).unwrap()
    };
    let read = |tree: &Tree| content(tree, &["a", "b", "file"]);
    assert_eq!(read(&scanned()).unwrap(), b"public");

    let (a, b) = (tree_dir.join("a"), tree_dir.join("a/b"));
    let replace: [(&str, &dyn Fn()); 5] = [
        ("directory on the way by a link", &|| {
            fs::rename(&b, dir.path().join("away")).unwrap();
            symlink(&secret, &b).unwrap();
        }),
        ("directory above by a link", &|| {
            fs::create_dir(secret.join("b")).unwrap();
            fs::write(secret.join("b/file"), "secret").unwrap();
            fs::rename(&a, dir.path().join("away")).unwrap();
            symlink(&secret, &a).unwrap();
        }),
        ("directory by another", &|| {
            fs::rename(&b, dir.path().join("away")).unwrap();
            fs::rename(secret.join("b"), &b).unwrap();
        }),
        ("file by a link", &|| {
            fs::remove_file(b.join("file")).unwrap();
            symlink(secret.join("file"), b.join("file")).unwrap();
        }),
        ("file by a pipe", &|| {
            fs::remove_file(b.join("file")).unwrap();
            let mode = rustix::fs::Mode::RWXU;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(CWD, b.join("file"), kind, mode, 0).unwrap();
        }),
    ];
    for (what, replace) in replace {
        let _there_may_be_none = fs::remove_dir_all(dir.path().join("away"));
        let tree = scanned();
        replace();
        let error = read(&tree).expect_err(what).to_string();
        assert!(
            error.contains("another file replaced it"),
            "{what}: {error}"
        );
    }
}

#[test]
fn directories_that_are_swapped_during_a_scan_lead_nowhere_else() {
    let dir = temp_dir("scan");
    let tree_dir = dir.path().join("tree");
    fs::create_dir_all(tree_dir.join("a/b")).unwrap();
    fs::write(tree_dir.join("a/b/public"), "public").unwrap();
    fs::create_dir_all(dir.path().join("outside/b")).unwrap();
    fs::write(dir.path().join("outside/b/secret"), "secret").unwrap();
    symlink("../outside", dir.path().join("link")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let swap = || {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            let (a, link) = (tree_dir.join("a"), dir.path().join("link"));
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &a, CWD, &link, flags).unwrap();
            }
        };
        let swapper = scope.spawn(swap);
        for _ in 0..20_000 {
            match scan(&tree_dir, &ScanOptions::default()) {
                Ok(tree) => {
                    let names = names(&tree);
                    assert!(!names.contains(&"/a/b/secret".into()), "{names:?}");
                    whole += usize::from(names.contains(&"/a/b/public".into()));
                }
                Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
    });
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
}

#[test]
fn several_sources_are_one_tree() {
    let dir = temp_dir("scan");
    sample(dir.path());
    let (src, file) = (dir.path().join("src"), dir.path().join("src/a.c"));
    let source = |path: &Path, name: &str| NamedSource {
        path: path.to_path_buf(),
        name: name.into(),
    };
    let sources = [
        source(&src, "one"),
        source(&file, "two"),
        source(&src, "three"),
    ];
    let options = ScanOptions {
        exclude: Patterns::from_rule(|path| path == b"three/a.o"),
        ..ScanOptions::default()
    };
    let mut tree = scan_sources(&sources, &options, None).unwrap();
    let found = names(&tree);
    let has = |name: &str| found.iter().any(|found| found == name);
    assert!(
        has("/one/a.c") && has("/two") && has("/three/a.c"),
        "{found:?}"
    );
    assert!(has("/one/a.o") && !has("/three/a.o"), "{found:?}");
    // The file has one node under its three names before the change, and three nodes after it.
    let nodes = |tree: &Tree| {
        let in_dir = |dir: &[u8]| tree.child(tree.child(Tree::ROOT, dir).unwrap(), b"a.c");
        [
            tree.child(Tree::ROOT, b"two"),
            in_dir(b"one"),
            in_dir(b"three"),
        ]
    };
    let [two, one, three] = nodes(&tree);
    assert!(two == one && one == three);
    tree.separate_links();
    let [two, one, three] = nodes(&tree);
    assert!(two != one && one != three && two != three);
    let taken = [source(&src, "a"), source(&file, "a")];
    assert!(scan_sources(&taken, &options, None).is_err());
    let gone = [source(&src.join("none"), "a")];
    assert!(scan_sources(&gone, &options, None).is_err());
}
