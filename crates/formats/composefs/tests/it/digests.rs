//! Images equal those of the reference implementation byte for byte: the tests compare their
//! digests with those of mkcomposefs 1.0.8 for the same trees.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use forerun_build::{BuildError, Content, HostFile, NewNode, NodeKind, ScanOptions, Tree, scan};
use forerun_composefs::write::{
    ComposefsOptions, DumpError, FileData, Files, read_dump, write, write_metadata,
};
use forerun_composefs::{Algorithm, ObjectStore, Stored};

use crate::common;

/// Returns a dump of files and links whose contents nearly fill blocks.
fn borders() -> String {
    let mut text = "/ 4096 40755 2 0 0 0 5.0 - - -\n".to_string();
    let lens = [
        1, 64, 1000, 2000, 2047, 2048, 2049, 3000, 4031, 4032, 4033, 4095,
    ];
    for (i, n) in lens.into_iter().enumerate() {
        let (data, pad) = ("a".repeat(n), "p".repeat(i * 5));
        let second = 5 + i % 2;
        writeln!(
            text,
            "/file{i:02} {n} 100644 1 0 0 0 {second}.0 - {data} - user.pad={pad}"
        )
        .unwrap();
        let (target, value) = ("l".repeat(n), "q".repeat(i));
        let second = 5 + i % 3;
        writeln!(
            text,
            "/link{i:02} {n} 120777 1 0 0 0 {second}.0 {target} - - user.q={value}"
        )
        .unwrap();
    }
    text
}

/// Returns a dump of directories with several blocks. The names include those that the format
/// reserves for whiteouts in the root.
fn large_directories() -> String {
    let mut text = "/ 4096 40755 2 0 0 0 5.0 - - -\n".to_string();
    let dirs = [
        (1, 255),
        (100, 30),
        (140, 12),
        (200, 200),
        (300, 5),
        (1000, 9),
        (97, 29),
    ];
    for (d, (count, length)) in dirs.into_iter().enumerate() {
        writeln!(text, "/dir{d} 0 40755 2 0 0 0 5.0 - - -").unwrap();
        for i in 0..count {
            let rest = "n".repeat(length - 4);
            writeln!(text, "/dir{d}/{i:04x}{rest} 0 100644 1 0 0 0 5.0 - - -").unwrap();
        }
    }
    for i in (0..256).step_by(5) {
        writeln!(text, "/{i:02x} 0 40755 2 0 0 0 5.0 - - -").unwrap();
    }
    text
}

#[test]
fn digests_are_those_of_the_reference() {
    let golden = include_str!("golden/digests.txt");
    for line in golden.lines() {
        let [name, min, max, digest] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let text = match name {
            "borders" => borders(),
            "large_directories" => large_directories(),
            "empty" => include_str!("golden/empty.dump").to_string(),
            "every_kind" => include_str!("golden/every_kind.dump").to_string(),
            "shared_attributes" => include_str!("golden/shared_attributes.dump").to_string(),
            "whiteouts" => include_str!("golden/whiteouts.dump").to_string(),
            other => panic!("no tree of the name {other}"),
        };
        let (tree, files) = read_dump(text.as_bytes()).unwrap();
        let mut options = ComposefsOptions::default();
        options.min_version = min.parse().unwrap();
        options.max_version = max.parse().unwrap();
        let mut image = Vec::new();
        let written = write_metadata(&tree, &files, &options, &mut image, &Arc::default()).unwrap();
        assert_eq!(written.digest.to_string(), digest, "{line}");
        assert_eq!(written.len, image.len() as u64);
        assert_eq!(written.digest, Algorithm::Sha256.digest(&image), "{line}");
    }
}

/// The digest from mkcomposefs for the directory that the next test creates.
const HOST_DIGEST: &str = "0200e62297a727fce62fedd7863938faec0273c3c6046eed896119b8eddb000c";
const HOST_OBJECTS: [&str; 8] = [
    "14/8c3083938ec62c1272c785556951e0e5a779e87bff3f7693159fde26bdbef4",
    "1c/77500d1c79014be4f8a3098f34859ea636b31901413dd473b71f623f1ef791",
    "39/ccb583bb57b7bc921e679912fbeed5b4140ce74c89cfd2b64ba0bc000de995",
    "5f/ef5f91b327630537620bcb3e0c10d259ebf070701a4c451d76b763817d9354",
    "87/a706bdba32be89a173dc11d6a91c08165b4dcfcf743988c94595e82934a41a",
    "94/fb61e501b8f3816d23cb3297e85c9f1246963a70c3b37f454e861e5901f1d8",
    "bd/6eb87ed391ed32777e86d98aca73e3f00d1dbe4bbb52a114831d4a62ecabaa",
    "f4/c2c0b7df74e2c1fd43b2d9719e7e3d0a83a49d190fe5cb27cc2282a9f559a8",
];

#[test]
fn a_directory_of_the_host_has_the_digest_and_the_objects_of_the_reference() {
    let dir = forerun_testkit::temp_dir("composefs-host");
    let host = dir.path().join("host");
    common::make_host_tree(&host);
    let mut tree = scan(&host, &ScanOptions::default()).unwrap();
    for node in tree.nodes_mut() {
        (node.uid, node.gid) = (0, 0);
    }
    for (hard_links, threads) in [(false, 1), (false, 3), (true, 2)] {
        let store = dir.path().join(format!("store-{hard_links}-{threads}"));
        let mut options = ComposefsOptions::default();
        options.objects = Some(store.clone());
        options.hard_links = hard_links;
        options.threads = threads;
        // The second time, all objects exist.
        for _ in 0..2 {
            let written = write(&tree, &options, &mut Vec::new(), &Arc::default()).unwrap();
            assert_eq!(written.digest.to_string(), HOST_DIGEST);
            assert_eq!(
                common::objects(&store),
                BTreeSet::from(HOST_OBJECTS.map(String::from))
            );
        }
        let opened = ObjectStore::open(&store).unwrap();
        opened
            .list(&mut |stored| match stored {
                Stored::Object { digest, len, .. } => {
                    let file = opened.open_object(&digest).unwrap();
                    let (measured, measured_len) = Algorithm::Sha256.measure(file).unwrap();
                    assert_eq!((measured, measured_len), (digest, len));
                }
                Stored::Temporary { name, .. } => panic!("{name} was left behind"),
            })
            .unwrap();
    }
}

/// The digests come from `cfsctl --erofs-version V --hash sha512 compute-id
/// --no-propagate-usr-to-root` of composefs-rs 0.9.4 for the same directory.
#[test]
fn digests_by_sha512_are_those_of_composefs_rs() {
    let dir = forerun_testkit::temp_dir("composefs-sha512");
    let host = dir.path().join("host");
    common::make_host_tree(&host);
    let mut tree = scan(&host, &ScanOptions::default()).unwrap();
    for node in tree.nodes_mut() {
        (node.uid, node.gid) = (0, 0);
    }
    let store = dir.path().join("store");
    for (version, digest) in [
        (
            0,
            "bdc82619c1536da6a1449751c7cde77a90ec3f7d89815a13b8a03a8a02273ec0\
             965c1758250df0a6f05b752283bbbfd57edaf26eca34bc0fa859b2c31851b61d",
        ),
        (
            1,
            "658552d5b185ce2820cd4039a041da5be9bc1fe448e16df11200e25aa5addc81\
             ac786187031ad2588f49b51b461387d480d7445654a64aa781538e6653913a5f",
        ),
    ] {
        let mut options = ComposefsOptions::default();
        (options.min_version, options.max_version) = (version, version);
        options.digest = Algorithm::Sha512;
        options.objects = Some(store.clone());
        let written = write(&tree, &options, &mut Vec::new(), &Arc::default()).unwrap();
        assert_eq!(written.digest.to_string(), digest, "version {version}");
    }
    let names = common::objects(&store);
    assert_eq!(names.len(), HOST_OBJECTS.len());
    assert!(names.iter().all(|name| name.len() == 129), "{names:?}");
}

#[test]
fn digests_of_files() {
    // The others are names that mkcomposefs gave to objects with these contents. Empty files are
    // not objects; their digest comes from `fsverity digest`. `composefs-info measure-file` reports
    // another one, as if there were a block of zeros.
    let empty = "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
    assert_eq!(Algorithm::Sha256.digest(b"").to_string(), empty);
    for (len, object) in [(4095, ""), (65, ""), ((1 << 20) + 1, HOST_OBJECTS[3])] {
        let digest = Algorithm::Sha256.digest(&common::content(len));
        if object.is_empty() {
            assert!(HOST_OBJECTS.contains(&&*digest.object_path()), "{len}");
        } else {
            assert_eq!(digest.object_path(), object);
        }
    }
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let file = |len| NodeKind::File {
        len,
        content: Content::Bytes(Arc::default()),
    };
    let cases = [
        (vec![b'n'; 256], file(0)),
        (b"link".to_vec(), NodeKind::Symlink(vec![b'l'; 4096])),
        (b"large".to_vec(), file(1 << 55)),
    ];
    for (name, kind) in cases {
        let mut tree = Tree::default();
        let node = tree
            .add(Tree::ROOT, &name, NewNode::new(kind, 0o644))
            .unwrap();
        let mut files = Files::default();
        files.insert(node, FileData::object(Algorithm::Sha256.digest(b"")));
        let options = ComposefsOptions::default();
        let refused = write_metadata(&tree, &files, &options, &mut Vec::new(), &Arc::default());
        assert!(
            matches!(refused, Err(BuildError::Format { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn a_file_that_changed_since_it_was_scanned_is_told() {
    let dir = forerun_testkit::temp_dir("composefs-changed");
    for len in [10, 3 << 20] {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; len]).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        let mut tree = Tree::default();
        let kind = NodeKind::File {
            len: len as u64 + 1,
            content: Content::Host(HostFile::named(path, &metadata)),
        };
        tree.add(Tree::ROOT, b"file", NewNode::new(kind, 0o644))
            .unwrap();
        let mut options = ComposefsOptions::default();
        options.objects = Some(dir.path().join("store"));
        let failed = write(&tree, &options, &mut Vec::new(), &Arc::default());
        assert!(
            matches!(failed, Err(BuildError::Content { .. })),
            "{failed:?}"
        );
        assert!(common::objects(&dir.path().join("store")).is_empty());
    }
}

/// The digests come from mkcomposefs built from the composefs sources.
#[test]
fn lines_of_a_dump_that_are_rare_have_the_digests_of_the_reference() {
    let check = |lines: &str, expected: &str| {
        let lines = format!("/ 4096 40755 2 0 0 0 5.0 - - -\n{lines}");
        let (tree, files) = read_dump(lines.as_bytes()).unwrap();
        let options = ComposefsOptions::default();
        let mut out = Vec::new();
        let written = write_metadata(&tree, &files, &options, &mut out, &Arc::default()).unwrap();
        assert_eq!(written.digest.to_string(), expected, "{lines}");
    };
    // The links come first by name, but the node keeps its position.
    let links = "/x 0 100644 3 0 0 0 1.5 - - -\n/y 0 @100644 1 0 0 0 1.5 /x - -\n\
                 /a 0 @100644 1 0 0 0 1.5 x - -\n";
    check(
        links,
        "50c92f7c5f9265245888dab476a06418a353a72a43542ea320d4283b74b6e0f7",
    );
    let paths = format!(
        "/x 100 100644 1 0 0 0 1.5 /abs/path - {}\n",
        "ab".repeat(32)
    );
    check(
        &paths,
        "7a32292335849badf5730a4dca59236a8298559e26092e34cf055053aedac3dc",
    );
    // No line break at the end, a time before 1970, and more contents than `pack` stores in an
    // image.
    let content = format!("/x 5000 100644 1 0 0 0 -1.5 - {} -", "q".repeat(5000));
    check(
        &content,
        "2eb0faf840e8e40b232253ad28b34954e23035f41eb21b4dc163eaa9e1d18e29",
    );
}

/// Checks that each line is refused, with its number and a reason.
#[test]
fn wrong_lines_of_a_dump_are_refused() {
    let check = |lines: &str, expected: &str| {
        let error = read_dump(lines.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{lines}");
    };
    assert!(matches!(read_dump(&b""[..]), Err(DumpError::NoRoot)));
    let root = "the first line must describe the root, and no other line may";
    check("/a 0 40755 2 0 0 0 0.0 - - -", &format!("line 1: {root}"));
    check("/ 0 100644 1 0 0 0 0.0 - - -", &format!("line 1: {root}"));
    for (line, expected) in [
        ("/ 0 40755 2 0 0 0 0.0 - - -", root),
        ("/a 0 40755 2 0 0 0 0.0 -", "the field content is missing"),
        ("", "the field size is missing"),
        (
            "/a/b 0 100644 1 0 0 0 0.0 - - -",
            "the directory \"/a\" has no line before this one",
        ),
        (
            "/a x 100644 1 0 0 0 0.0 - - -",
            "size \"x\" is not a number, or is too large",
        ),
        (
            "/a 0 1100644 1 0 0 0 0.0 - - -",
            "mode \"1100644\" is not a number, or is too large",
        ),
        (
            "/a 0 644 1 0 0 0 0.0 - - -",
            "mode 644 has no known file type",
        ),
        (
            "/a 0 100644 1 0 0 0 5 - - -",
            "mtime \"5\" is not a number, or is too large",
        ),
        (
            "/a 0 100644 1 0 0 0 5.1000000000 - - -",
            "mtime \"5.1000000000\" is not a number, or is too large",
        ),
        (
            "/a 0 100644 1 0 4294967296 0 5.0 - - -",
            "gid \"4294967296\" is not a number, or is too large",
        ),
        (
            "/a\\q 0 100644 1 0 0 0 0.0 - - -",
            "path has an unknown escape",
        ),
        (
            "/a\\x0 0 100644 1 0 0 0 0.0 - - -",
            "path has an unknown escape",
        ),
        (
            "/a\\x00 0 100644 1 0 0 0 0.0 - - -",
            "path contains a NUL byte",
        ),
        (
            "/a 3 120777 1 0 0 0 0.0 - - -",
            "the symbolic link has no target",
        ),
        (
            "/a 3 100644 1 0 0 0 0.0 - ab -",
            "the content has 2 bytes, but the size is 3; at most 5000 are allowed",
        ),
        (
            "/a 3 100644 1 0 0 0 0.0 x - 12",
            "the digest is not 64 or 128 hexadecimal digits",
        ),
        (
            "/a 0 100644 1 0 0 0 0.0 - - - user.a",
            "an attribute is not NAME=VALUE",
        ),
        (
            "/a 0 @100644 1 0 0 0 0.0 /b - -",
            "\"/b\", to which a hard link points, does not exist",
        ),
        ("/.. 0 100644 1 0 0 0 0.0 - - -", "..: name is . or .."),
    ] {
        let lines = format!("/ 0 40755 2 0 0 0 0.0 - - -\n{line}\n");
        check(&lines, &format!("line 2: {expected}"));
    }
    let long = format!("/ 0 40755 2 0 0 0 0.0 - - - user.a={}", "x".repeat(600_000));
    check(&long, "line 1: longer than 524288 bytes");
}
