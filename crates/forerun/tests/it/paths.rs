//! The methods that take paths, on images made by the project's writers.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use forerun::build::{
    Content, ErofsOptions, ExfatOptions, NewNode, NodeIndex, NodeKind, RomfsOptions,
    SquashfsOptions, Tree,
};
use forerun::{FileType, Image, Limits, MemorySource, OpenOptions, Writer};
use forerun_testkit::temp_dir;

pub fn file(contents: &[u8]) -> NewNode {
    let kind = NodeKind::File {
        len: contents.len() as u64,
        content: Content::Bytes(contents.into()),
    };
    NewNode::new(kind, 0o644)
}

fn add(tree: &mut Tree, dir: NodeIndex, name: &[u8], node: NewNode) -> NodeIndex {
    tree.add(dir, name, node).unwrap()
}

/// Creates a tree that every format can store.
fn plain() -> Tree {
    let mut tree = Tree::default();
    let etc = add(&mut tree, Tree::ROOT, b"etc", NewNode::directory());
    add(&mut tree, etc, b"hosts", file(b"127.0.0.1 localhost\n"));
    add(&mut tree, etc, b"passwd", file(b"root:x:0:0\n"));
    add(&mut tree, etc, b"empty", file(b""));
    let usr = add(&mut tree, Tree::ROOT, b"usr", NewNode::directory());
    add(&mut tree, usr, b"bin", NewNode::directory());
    tree
}

const NOT_UTF8: &[u8] = b"caf\xe9";

/// Adds symbolic links, a name that is not UTF-8 and a device.
fn posix() -> Tree {
    let mut tree = plain();
    for (name, target) in [
        ("absolute", "/etc/passwd"),
        ("relative", "etc/../etc/./hosts"),
        ("outside", "../../../etc/hosts"),
        ("directory", "etc/"),
        ("self", "self"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("nowhere", "/none"),
        // A link to a link: resolving `chain` takes two hops.
        ("chain", "absolute"),
    ] {
        let link = NewNode::new(NodeKind::Symlink(target.into()), 0o777);
        add(&mut tree, Tree::ROOT, name.as_bytes(), link);
    }
    add(&mut tree, Tree::ROOT, NOT_UTF8, file(b"coffee"));
    add(
        &mut tree,
        Tree::ROOT,
        b"pipe",
        NewNode::new(NodeKind::Fifo, 0o600),
    );
    tree
}

pub fn image(tree: &Tree, writer: &Writer, options: &OpenOptions) -> Image {
    let mut bytes = Vec::new();
    writer.write(tree, &mut bytes, &Arc::default()).unwrap();
    let image = Image::from_source(Arc::new(MemorySource::new(bytes)), options).unwrap();
    assert_eq!(image.format(), writer.name());
    image
}

/// Returns an image in each format with symbolic links.
fn posix_images() -> [Image; 3] {
    let tree = posix();
    [
        Writer::Squashfs(SquashfsOptions::default()),
        Writer::Erofs(ErofsOptions::default()),
        Writer::Romfs(RomfsOptions::default()),
    ]
    .map(|writer| image(&tree, &writer, &OpenOptions::new()))
}

fn images() -> Vec<Image> {
    let exfat = Writer::Exfat(ExfatOptions::default());
    let exfat = image(&plain(), &exfat, &OpenOptions::new());
    posix_images().into_iter().chain([exfat]).collect()
}

#[test]
fn files_and_directories_are_found_by_any_spelling_of_their_path() {
    for image in images() {
        let format = image.format();
        for path in [
            "/etc/passwd",
            "etc/passwd",
            "/usr/../etc//./passwd",
            "../../etc/passwd",
        ] {
            assert_eq!(
                image.read(path).unwrap(),
                b"root:x:0:0\n",
                "{format} {path}"
            );
            assert!(image.exists(path).unwrap());
            let canonical = image.canonicalize(path).unwrap();
            assert_eq!(canonical, Path::new("/etc/passwd"), "{format} {path}");
        }
        assert_eq!(image.read("/etc/empty").unwrap(), b"");
        let text = image.read_to_string(String::from("/etc/hosts")).unwrap();
        assert_eq!(text, "127.0.0.1 localhost\n");
        let metadata = image.metadata("/etc/passwd").unwrap();
        assert!(metadata.is_file() && metadata.size == 11, "{format}");
        for root in ["", "/", "..", "/.."] {
            assert!(
                image.symlink_metadata(root).unwrap().is_dir(),
                "{format} {root}"
            );
            assert_eq!(image.canonicalize(root).unwrap(), Path::new("/"));
        }
        assert!(image.xattrs("/etc").unwrap().is_empty());
    }
}

#[test]
fn wrong_paths_fail_with_the_kinds_of_std() {
    for image in images() {
        let format = image.format();
        for (path, kind) in [
            ("/none", ErrorKind::NotFound),
            ("/etc/none/deeper", ErrorKind::NotFound),
            ("/etc/passwd/x", ErrorKind::NotADirectory),
            ("/etc/passwd/", ErrorKind::NotADirectory),
            ("/etc/passwd/..", ErrorKind::NotADirectory),
            ("/etc", ErrorKind::IsADirectory),
        ] {
            let error = image.read(path).unwrap_err();
            assert_eq!(error.kind(), kind, "{format} {path}: {error}");
            assert_eq!(error.path(), Some(Path::new(path)));
            assert_eq!(io::Error::from(error).kind(), kind);
            assert_eq!(image.file(path).unwrap_err().kind(), kind);
            assert_eq!(image.exists(path).unwrap(), path == "/etc");
        }
        let list = |path| image.read_dir(path).unwrap_err().kind();
        assert_eq!(list("/etc/passwd"), ErrorKind::NotADirectory, "{format}");
        assert_eq!(list("/none"), ErrorKind::NotFound);
        let link = image.read_link("/etc/passwd").unwrap_err();
        assert_eq!(link.kind(), ErrorKind::InvalidInput, "{format}");
        assert!(image.walk_from("/none").is_err());
    }
}

#[test]
fn symbolic_links_resolve_inside_the_image() {
    for image in posix_images() {
        let format = image.format();
        for (path, expected, canonical) in [
            ("absolute", &b"root:x:0:0\n"[..], "/etc/passwd"),
            ("chain", b"root:x:0:0\n", "/etc/passwd"),
            ("relative", b"127.0.0.1 localhost\n", "/etc/hosts"),
            ("outside", b"127.0.0.1 localhost\n", "/etc/hosts"),
            ("directory/hosts", b"127.0.0.1 localhost\n", "/etc/hosts"),
            ("directory/../absolute", b"root:x:0:0\n", "/etc/passwd"),
        ] {
            assert_eq!(image.read(path).unwrap(), expected, "{format} {path}");
            assert_eq!(image.canonicalize(path).unwrap(), Path::new(canonical));
        }
        assert!(image.symlink_metadata("absolute").unwrap().is_symlink());
        assert_eq!(
            image.read_link("absolute").unwrap(),
            Path::new("/etc/passwd")
        );
        assert_eq!(image.read_dir("directory").unwrap().count(), 3);
        assert_eq!(
            image.read("nowhere").unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert!(!image.exists("nowhere").unwrap());
        let pipe = image.file("pipe").unwrap_err();
        assert_eq!(pipe.kind(), ErrorKind::InvalidInput, "{format}: {pipe}");
    }
}

#[test]
fn loops_of_symbolic_links_are_refused() {
    let eloop = io::Error::from_raw_os_error(40).kind();
    for image in posix_images() {
        for path in ["self", "ping", "ping/x", "self/../etc/passwd"] {
            let error = image.read(path).unwrap_err();
            assert_eq!(error.kind(), eloop, "{path}: {error}");
            assert_eq!(image.exists(path).unwrap_err().kind(), eloop);
            let cause = error.cause();
            let is_loop = |cause: &_| {
                matches!(
                    cause,
                    forerun::Cause::Image(forerun::vfs::Error::SymlinkLoop)
                )
            };
            assert!(is_loop(cause), "{cause:?}");
        }
    }
    // 40 links are followed, but not 41.
    let mut tree = plain();
    for n in 0..42 {
        let target = match n {
            0 => "etc/passwd".to_string(),
            n => format!("link-{}", n - 1),
        };
        let link = NewNode::new(NodeKind::Symlink(target.into()), 0o777);
        add(&mut tree, Tree::ROOT, format!("link-{n}").as_bytes(), link);
    }
    let writer = Writer::Squashfs(SquashfsOptions::default());
    let image = image(&tree, &writer, &OpenOptions::new());
    assert!(image.read("link-39").is_ok());
    assert_eq!(image.read("link-40").unwrap_err().kind(), eloop);
}

#[test]
fn names_need_not_be_utf_8() {
    for image in posix_images() {
        let name = OsStr::from_bytes(NOT_UTF8);
        assert_eq!(image.read(name).unwrap(), b"coffee");
        let listed = image.read_dir("/").unwrap().map(Result::unwrap);
        let entry = listed
            .into_iter()
            .find(|entry| entry.name() == name)
            .unwrap();
        assert_eq!(entry.path(), Path::new("/").join(name));
        assert_eq!(entry.read().unwrap(), b"coffee");
        let walked = image.walk().map(Result::unwrap);
        assert_eq!(walked.filter(|entry| entry.name() == name).count(), 1);
    }
}

#[test]
fn listings_and_walks_have_names_paths_and_metadata() {
    for image in images() {
        let format = image.format();
        let mut listed: Vec<_> = image
            .read_dir("etc")
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.path().to_path_buf(), entry.metadata().unwrap().size))
            .collect();
        listed.sort();
        let expected = [("etc/empty", 0), ("etc/hosts", 20), ("etc/passwd", 11)];
        assert_eq!(
            listed,
            expected.map(|(path, size)| (path.into(), size)),
            "{format}"
        );

        let mut walk = image.walk();
        let root = walk.next().unwrap().unwrap();
        assert_eq!(
            (root.path(), root.file_type()),
            (Path::new("/"), FileType::Directory)
        );
        let below: Vec<_> = walk.map(|entry| entry.unwrap()).collect();
        let find = |path: &str| below.iter().find(|entry| entry.path() == Path::new(path));
        assert_eq!(
            find("/etc/passwd").unwrap().read().unwrap(),
            b"root:x:0:0\n"
        );
        assert!(find("/usr/bin").unwrap().metadata().unwrap().is_dir());
        let error = find("/usr/bin").unwrap().read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        let from: Vec<_> = image
            .walk_from("/usr")
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(from.len(), 2);
        assert_eq!(from[1].path(), Path::new("/usr/bin"));

        let mut walk = image.walk();
        let mut met = 0;
        while let Some(entry) = walk.next() {
            met += 1;
            if entry.unwrap().path() == Path::new("/etc") {
                walk.skip_children();
            }
        }
        assert_eq!(met, below.len() + 1 - 3, "{format}");
    }
}

#[test]
fn a_long_directory_is_listed_in_parts_and_within_its_limit() {
    let mut tree = Tree::default();
    for n in 0..5000 {
        add(
            &mut tree,
            Tree::ROOT,
            format!("a-rather-long-name-{n:05}").as_bytes(),
            file(b""),
        );
    }
    let writer = Writer::Squashfs(SquashfsOptions::default());
    let whole = image(&tree, &writer, &OpenOptions::new());
    let names: std::collections::BTreeSet<_> = whole
        .read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().name().to_owned())
        .collect();
    assert_eq!(names.len(), 5000);
    let mut limits = Limits::default();
    limits.dir_entries = 3000;
    let bounded = image(&tree, &writer, &OpenOptions::new().limits(limits));
    let mut entries = bounded.read_dir("/").unwrap();
    assert_eq!(entries.by_ref().take_while(Result::is_ok).count(), 3000);
    assert!(entries.next().is_none());
}

#[test]
fn attributes_are_returned_and_links_to_their_node_followed() {
    let mut tree = posix();
    let etc = tree.child(Tree::ROOT, b"etc").unwrap();
    let mut node = file(b"x");
    node.xattrs.insert(b"user.note".to_vec(), b"value".to_vec());
    add(&mut tree, etc, b"noted", node);
    for writer in [
        Writer::Squashfs(SquashfsOptions::default()),
        Writer::Erofs(ErofsOptions::default()),
    ] {
        let image = image(&tree, &writer, &OpenOptions::new());
        let expected = vec![("user.note".into(), b"value".to_vec())];
        assert_eq!(image.xattrs("directory/noted").unwrap(), expected);
        let mut listed = image.read_dir("/etc").unwrap().map(Result::unwrap);
        let entry = listed.find(|entry| entry.name() == "noted").unwrap();
        assert_eq!(entry.xattrs().unwrap(), expected);
    }
}

#[test]
fn exfat_ignores_case_as_its_volumes_do() {
    let writer = Writer::Exfat(ExfatOptions::default());
    let image = image(&plain(), &writer, &OpenOptions::new());
    assert_eq!(image.read("/ETC/Passwd").unwrap(), b"root:x:0:0\n");
    assert_eq!(image.canonicalize("/ETC").unwrap(), Path::new("/ETC"));
}

#[test]
fn images_that_cannot_be_opened_are_named() {
    let dir = temp_dir("paths");
    let text = dir.path().join("text");
    std::fs::write(&text, "no image").unwrap();
    for (path, kind) in [
        (dir.path().join("none"), ErrorKind::NotFound),
        (dir.path().to_path_buf(), ErrorKind::IsADirectory),
        (text.join("below"), ErrorKind::NotADirectory),
        (text, ErrorKind::InvalidData),
    ] {
        let error = Image::open(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!((error.image(), error.path()), (Some(&*path), None));
        let shown = format!("{}: ", path.display());
        assert!(error.to_string().starts_with(&shown), "{error}");
        assert!(!error.to_string().contains("reading 0 bytes"), "{error}");
    }
    let error = Image::open("s3://bucket-without-key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn options_are_built_by_their_names() {
    let mut bytes = vec![0; 4096];
    let writer = Writer::Romfs(RomfsOptions::default());
    let mut image = Vec::new();
    writer.write(&plain(), &mut image, &Arc::default()).unwrap();
    bytes.extend_from_slice(&image);
    bytes.extend_from_slice(&[0xFF; 100]);
    let dir = temp_dir("options");
    let path = dir.path().join("firmware");
    std::fs::write(&path, bytes).unwrap();
    let options = OpenOptions::new().offset(4096).size(image.len() as u64);
    let opened = options.clone().format("romfs").open(&path).unwrap();
    assert_eq!(opened.read("/etc/passwd").unwrap(), b"root:x:0:0\n");
    assert_eq!(opened.name(), Some(&*path));
    let error = options.format("squashfs").open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}
