//! Trees made from a manifest, alone and on top of another tree.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use forerun_build::{
    BuildError, NewNode, NodeIndex, NodeKind, PseudoDefinitions, PseudoRules, ScanOptions, Tree,
    apply_manifest, scan,
};
use forerun_io::Limits;
use forerun_testkit::{require, temp_dir};
use forerun_vfs::{Device, Timestamp};

fn find(tree: &Tree, path: &str) -> Option<NodeIndex> {
    path.split('/').try_fold(Tree::ROOT, |dir, name| {
        let name = name.replace("\\n", "\n");
        tree.child(dir, name.as_bytes())
    })
}

fn node<'t>(tree: &'t Tree, path: &str) -> &'t NewNode {
    tree.node(find(tree, path).unwrap_or_else(|| panic!("{path} is there")))
}

fn bytes(node: &NewNode) -> Vec<u8> {
    let NodeKind::File { len, content } = &node.kind else {
        panic!("a file")
    };
    let mut bytes = Vec::new();
    let mut stream = content.open(*len).unwrap();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

fn apply(dir: &Path, text: &str, tree: &mut Tree) -> Result<(), BuildError> {
    let path = dir.join("list");
    fs::write(&path, text).unwrap();
    apply_manifest(tree, &path, &Limits::default())
}

#[test]
fn every_kind_of_entry_is_made() {
    let dir = temp_dir("manifest");
    fs::write(dir.path().join("body"), "from the host").unwrap();
    std::os::unix::fs::symlink("body", dir.path().join("alias")).unwrap();
    let text = "\
# A root filesystem.
/ D 7 700 1 2

dev D 1000 755 0 0
dev/console c 600 0 5 5 1
\"dev/a b\" B @8 660 0 6 8 0\r
dev/a\\012b i 644 0 0
run/deep/sock i 755 1 1 s
link s 777 0 0 some where/else
etc/file h 4755 10 20 body
etc/alias H 2026-01-31 644 0 0 alias
early l etc/file
etc/again L early
etc/file x user.note=two words
etc/file x user.bin=0x000aff
dev m 711 3 4
late l made/later
made/later h 600 0 0 body
";
    let mut tree = Tree::default();
    apply(dir.path(), text, &mut tree).unwrap();
    let root = tree.node(Tree::ROOT);
    assert_eq!((root.mode, root.uid, root.gid), (0o700, 1, 2));
    assert_eq!(root.mtime.seconds, 7);
    let dev = node(&tree, "dev");
    assert_eq!(
        (dev.mode, dev.uid, dev.gid, dev.mtime.seconds),
        (0o711, 3, 4, 1000)
    );
    let console = node(&tree, "dev/console");
    let Device { major, minor } = match console.kind {
        NodeKind::CharDevice(device) => device,
        _ => panic!("a device"),
    };
    assert_eq!((major, minor, console.mode, console.gid), (5, 1, 0o600, 5));
    let disk = node(&tree, "dev/a b");
    assert!(matches!(
        disk.kind,
        NodeKind::BlockDevice(Device { major: 8, minor: 0 })
    ));
    assert_eq!((disk.mtime.seconds, disk.gid), (8, 6));
    assert!(matches!(node(&tree, "dev/a\\nb").kind, NodeKind::Fifo));
    assert!(matches!(
        node(&tree, "run/deep/sock").kind,
        NodeKind::Socket
    ));
    assert_eq!(node(&tree, "run/deep").mode, 0o755);
    assert!(matches!(&node(&tree, "link").kind, NodeKind::Symlink(to) if to == b"some where/else"));
    let file = node(&tree, "etc/file");
    assert_eq!(
        (file.mode, file.uid, file.gid, file.mtime.seconds),
        (0o4755, 10, 20, 0)
    );
    assert_eq!(bytes(file), b"from the host");
    assert_eq!(file.xattrs[&b"user.note"[..]], b"two words");
    assert_eq!(file.xattrs[&b"user.bin"[..]], b"\0\x0a\xff");
    assert_eq!(bytes(node(&tree, "etc/alias")), b"from the host");
    assert_eq!(node(&tree, "etc/alias").mtime.seconds, 1_769_817_600);
    assert_eq!(find(&tree, "etc/file"), find(&tree, "early"));
    assert_eq!(find(&tree, "etc/file"), find(&tree, "etc/again"));
    assert_eq!(find(&tree, "late"), find(&tree, "made/later"));
}

#[test]
fn a_tree_is_changed_in_place() {
    let dir = temp_dir("manifest");
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("dev")).unwrap();
    fs::write(root.join("tool"), "x").unwrap();
    let mut tree = scan(&root, &ScanOptions::default()).unwrap();
    let before = node(&tree, "tool").mtime;
    let text = "tool m 4755 0 0\ndev/null c 666 0 0 1 3\ndev d 700 0 0\n";
    apply(dir.path(), text, &mut tree).unwrap();
    assert_eq!(
        (node(&tree, "tool").mode, node(&tree, "tool").mtime),
        (0o4755, before)
    );
    assert_eq!(bytes(node(&tree, "tool")), b"x");
    assert_eq!(node(&tree, "dev").mode, 0o700);
    assert!(find(&tree, "dev/null").is_some());
}

/// Manifests with a mistake: text, line of the mistake, and part of the message.
const MISTAKES: &[(&str, usize, &str)] = &[
    ("a d 755 0 0\nb", 2, "the kind of entry is missing"),
    (
        "# c\n\na f 755 0 0 date",
        3,
        "forerun runs no commands (\"f\"): run the command first, and name its output with \"h mode uid gid FILE\"",
    ),
    (
        "a i 644 0 0\na d 755 0 0",
        2,
        "\"/a\" exists already; \"m\" changes what exists",
    ),
    (
        "a d 755 0 0\na i 755 0 0",
        2,
        "\"/a\" exists already; \"m\" changes what exists",
    ),
    (
        "/ i 644 0 0",
        1,
        "\"/\" exists already; \"m\" changes what exists",
    ),
    ("a i 644 0 0\na/b d 755 0 0", 2, "\"/a\" is not a directory"),
    ("a m 644 0 0", 1, "\"/a\" does not exist"),
    ("a x user.a=1", 1, "\"/a\" does not exist"),
    ("\na l b\nc d 755 0 0", 2, "\"/b\" does not exist"),
    (
        "a d 755 0 0\nb l a",
        2,
        "the target is a directory, which cannot have a second name",
    ),
    (
        "a d 755 0 0\nb i 644 0 0\nb l b",
        3,
        "\"/b\" exists already; \"m\" changes what exists",
    ),
    (
        "a R 5 644 0 0 4 0",
        1,
        "this manifest cannot have data after its entries: it is not a regular file",
    ),
    (
        "a R 5 644 0 0 4 3\n# START OF DATA - DO NOT MODIFY\n#\nsix...",
        1,
        "the 4 bytes of the file at 3 reach past the end of the data",
    ),
    (
        "a R 5 644 0 0 1 18446744073709551615\n# START OF DATA\n#\n.",
        1,
        "the 1 bytes of the file at 18446744073709551615 reach past the end of the data",
    ),
];

#[test]
fn mistakes_name_file_and_line() {
    let dir = temp_dir("manifest");
    fs::create_dir(dir.path().join("adir")).unwrap();
    for (text, line, message) in MISTAKES {
        let error = apply(dir.path(), text, &mut Tree::default()).unwrap_err();
        let expected = format!("{}:{line}: {message}", dir.path().join("list").display());
        assert_eq!(error.to_string(), expected);
    }
    for (file, message) in [
        ("nope", "No such file or directory (os error 2)"),
        ("adir", "not a regular file"),
    ] {
        let error = apply(
            dir.path(),
            &format!("a h 644 0 0 {file}"),
            &mut Tree::default(),
        );
        let list = dir.path().join("list");
        let host = dir.path().join(file);
        let expected = format!("{}:1: {}: {message}", list.display(), host.display());
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    let missing = dir.path().join("missing");
    let error = apply_manifest(&mut Tree::default(), &missing, &Limits::default()).unwrap_err();
    assert!(matches!(error, BuildError::Host { path, .. } if path == missing));
}

#[test]
fn limits_hold() {
    let dir = temp_dir("manifest");
    let list = dir.path().join("list");
    let mut limits = Limits::default();
    limits.tree_entries = 2;
    fs::write(&list, "a d 755 0 0\nb d 755 0 0\n").unwrap();
    let error = apply_manifest(&mut Tree::default(), &list, &limits).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(":2: more entries than the limit allows"),
        "{error}"
    );
    let limits = Limits::default();
    fs::write(
        &list,
        format!("{} d 755 0 0\n", "a/".repeat(limits.depth + 1)),
    )
    .unwrap();
    let error = apply_manifest(&mut Tree::default(), &list, &limits).unwrap_err();
    assert!(error.to_string().ends_with("is too deep"), "{error}");
    fs::write(&list, vec![b'a'; (1 << 20) + 1]).unwrap();
    let error = apply_manifest(&mut Tree::default(), &list, &limits).unwrap_err();
    assert!(
        error.to_string().ends_with(":1: longer than 1048576 bytes"),
        "{error}"
    );
}

/// Checks that forerun reads the pseudo files of unsquashfs like mksquashfs does.
#[test]
fn pseudo_files_of_unsquashfs_are_read() {
    let (Some(mksquashfs), Some(unsquashfs)) = (
        require::program("mksquashfs"),
        require::program("unsquashfs"),
    ) else {
        return;
    };
    let dir = temp_dir("manifest");
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("sub dir")).unwrap();
    fs::write(root.join("a"), "first\n\0bytes").unwrap();
    fs::write(root.join("sub dir/o \"dd\\"), vec![0; 300_000]).unwrap();
    fs::hard_link(root.join("a"), root.join("sub dir/again")).unwrap();
    std::os::unix::fs::symlink("a  \"b\\ c", root.join("to")).unwrap();
    let image = dir.path().join("image");
    let pseudo = dir.path().join("pseudo");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(Command::new(mksquashfs)
        .arg(&root)
        .arg(&image)
        .args(["-quiet", "-no-progress"])
        .args(["-p", "null c 666 0 3 1 3"]));
    run(Command::new(unsquashfs).arg("-pf").arg(&pseudo).arg(&image));
    let mut tree = Tree::default();
    apply_manifest(&mut tree, &pseudo, &Limits::default()).unwrap();
    assert_eq!(bytes(node(&tree, "a")), b"first\n\0bytes");
    assert!(bytes(node(&tree, "sub dir/o \"dd\\")) == vec![0; 300_000]);
    assert_eq!(find(&tree, "a"), find(&tree, "sub dir/again"));
    assert!(matches!(&node(&tree, "to").kind, NodeKind::Symlink(to) if to == b"a  \"b\\ c"));
    assert!(matches!(
        node(&tree, "null").kind,
        NodeKind::CharDevice(Device { major: 1, minor: 3 })
    ));
    assert_eq!(node(&tree, "null").gid, 3);
    let scanned = scan(&root, &ScanOptions::default()).unwrap();
    for path in ["a", "sub dir", "to"] {
        let (made, there) = (node(&tree, path), node(&scanned, path));
        assert_eq!(
            (made.mode, made.mtime.seconds),
            (there.mode, there.mtime.seconds),
            "{path}"
        );
    }
}

/// Checks NUL bytes in a link target and in an attribute name. An archive can have both in its PAX
/// records.
#[test]
fn nodes_with_nul_bytes_where_readers_refuse_them_are_not_taken() {
    let mut tree = Tree::default();
    let link = NewNode::new(NodeKind::Symlink(b"a\0b".to_vec()), 0o777);
    let mut file = NewNode::new(NodeKind::Fifo, 0o644);
    file.xattrs.insert(b"user.a\0b".to_vec(), Vec::new());
    for (node, what) in [(link, "target"), (file, "attribute")] {
        let error = tree.add(Tree::ROOT, b"name", node).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(tree.is_empty());
}

#[test]
fn lines_of_mksquashfs_that_cannot_be_are_told_and_ignored() {
    let dir = temp_dir("pseudo");
    fs::write(dir.path().join("file"), "text").unwrap();
    let mut tree = Tree::default();
    tree.add(Tree::ROOT, b"there", NewNode::directory())
        .unwrap();
    let mut told = Vec::new();
    let limits = Limits::default();
    let now = Timestamp {
        seconds: 77,
        nanoseconds: 0,
    };
    let rules = PseudoRules {
        now,
        makes_root: false,
        source: Path::new("src"),
        limits: &limits,
        told: &mut |message| told.push(message),
    };
    let mut definitions = PseudoDefinitions::new(&mut tree, rules);
    let like = format!("like l {}", dir.path().join("file").display());
    for line in [
        "# nothing",
        "there d 700 1 1",
        "there m 711 3 4",
        "none m 644 0 0",
        "/ d 700 1 1",
        "/ m 700 1 1",
        "a/b c 600 0 0 1 2",
        "a d 750 5 6",
        "a d 700 7 7",
        "a/b c 600 0 0 1 3",
        "late L a/c",
        "a/c i 644 0 0 s",
        &like,
    ] {
        definitions.line(line.as_bytes()).unwrap().unwrap();
    }
    assert!(definitions.line(b"a q").unwrap().is_err());
    definitions.finish().unwrap();
    let node = |path: &[&str]| {
        let found = path
            .iter()
            .try_fold(Tree::ROOT, |dir, name| tree.child(dir, name.as_bytes()));
        tree.node(found.unwrap()).clone()
    };
    assert_eq!((node(&["there"]).mode, node(&["there"]).uid), (0o711, 3));
    assert_eq!(
        (node(&["a"]).mode, node(&["a"]).uid, node(&["a"]).mtime),
        (0o750, 5, now)
    );
    assert!(matches!(node(&["a", "b"]).kind, NodeKind::CharDevice(device) if device.minor == 2));
    assert!(matches!(node(&["late"]).kind, NodeKind::Socket));
    assert!(matches!(
        node(&["like"]).kind,
        NodeKind::File { len: 4, .. }
    ));
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(
        told[0].starts_with("Pseudo file \"there\" exists in source filesystem \"src/there\".")
    );
    assert!(told[1].contains("\"none\" does not exist"));
    assert_eq!(
        told[4],
        "a/b already exists as a different pseudo definition.  Ignoring!"
    );
}
