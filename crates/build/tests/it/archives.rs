//! Archives of tar: the parts that are kept.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use forerun_build::{NodeKind, TarInput, TarOptions, Tree, read_tar};
use forerun_testkit::{require, temp_dir};
use forerun_vfs::Device;

/// Creates an archive of `root` with the tar of this machine.
fn archive(tar: &Path, root: &Path, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(tar);
    command.args(["-c", "--sort=name"]).args(args);
    let output = command.arg("-C").arg(root).arg(".").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn read_both(dir: &Path, archive: &[u8]) -> [Tree; 2] {
    let path = dir.join("archive.tar");
    fs::write(&path, archive).unwrap();
    let file = TarInput::File(File::open(&path).unwrap());
    let stream = TarInput::Stream(Box::new(std::io::Cursor::new(archive.to_vec())));
    [file, stream].map(|input| read_tar(input, &TarOptions::default()).unwrap())
}

#[test]
fn attributes_links_devices_and_times_are_kept() {
    let Some(tar) = require::program("tar") else {
        return;
    };
    let dir = temp_dir("tar");
    let root = dir.path().join("root");
    let long = "d".repeat(120);
    fs::create_dir_all(root.join(&long).join(&long)).unwrap();
    let file = root.join(&long).join(&long).join("file");
    fs::write(&file, vec![b'x'; 5000]).unwrap();
    fs::hard_link(&file, root.join("z-link")).unwrap();
    // Any bytes, with line breaks where a record might seem to end.
    let value = b"\n\n7 a=b\n\0\xff\n";
    xattr::set(&file, "user.bytes", value).unwrap();
    xattr::set(&root, "user.root", b"plain").unwrap();
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(500, 7));
    File::open(&file).unwrap().set_times(times).unwrap();
    let bytes = archive(&tar, &root, &["--format=posix", "--xattrs"]);
    for tree in read_both(dir.path(), &bytes) {
        let below = |dir, name: &str| tree.child(dir, name.as_bytes()).unwrap();
        let index = below(below(below(Tree::ROOT, &long), &long), "file");
        let node = tree.node(index);
        assert_eq!(node.xattrs[&b"user.bytes"[..]], value);
        assert_eq!((node.mtime.seconds, node.mtime.nanoseconds), (500, 7));
        assert_eq!(below(Tree::ROOT, "z-link"), index);
        assert_eq!(tree.node(Tree::ROOT).xattrs[&b"user.root"[..]], b"plain");
        let NodeKind::File { len, content } = &node.kind else {
            panic!("a file")
        };
        let mut bytes = Vec::new();
        content.open(*len).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes == vec![b'x'; 5000]);
    }
}

#[test]
fn devices_of_an_archive_need_no_root_here() {
    let Some(tar) = require::program("tar") else {
        return;
    };
    if !require::root() {
        return;
    }
    let dir = temp_dir("tar");
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    for (name, kind, major, minor) in [("c", "c", "5", "1"), ("b", "b", "259", "70000")] {
        let mut mknod = Command::new("mknod");
        let made = mknod.arg(root.join(name)).args([kind, major, minor]);
        assert!(made.status().unwrap().success());
    }
    for format in ["--format=posix", "--format=gnu"] {
        let bytes = archive(&tar, &root, &[format]);
        for tree in read_both(dir.path(), &bytes) {
            let kind = |name: &[u8]| &tree.node(tree.child(Tree::ROOT, name).unwrap()).kind;
            let (major, minor) = (5, 1);
            assert!(
                matches!(kind(b"c"), NodeKind::CharDevice(found) if *found == Device { major, minor })
            );
            let (major, minor) = (259, 70000);
            assert!(
                matches!(kind(b"b"), NodeKind::BlockDevice(found) if *found == Device { major, minor })
            );
        }
    }
}

fn header() -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

/// Returns an archive of an empty file `a` with a changed header.
fn archive_of(change: &dyn Fn(&mut tar::Header)) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = header();
    change(&mut header);
    archive.append_data(&mut header, "a", &[][..]).unwrap();
    archive.into_inner().unwrap()
}

fn failure(archive: Vec<u8>, options: &TarOptions) -> String {
    let input = TarInput::Stream(Box::new(std::io::Cursor::new(archive)));
    let error = read_tar(input, options).err().unwrap();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[test]
fn an_owner_or_a_time_that_no_filesystem_keeps_is_refused() {
    type Change = dyn Fn(&mut tar::Header);
    let cases: [(&str, &Change); 4] = [
        ("owner", &|header| header.set_uid(1 << 32)),
        ("owner", &|header| header.set_gid(u64::MAX)),
        ("time", &|header| header.set_mtime(1 << 63)),
        ("time", &|header| header.set_mtime(u64::MAX)),
    ];
    for (what, change) in cases {
        let failure = failure(archive_of(change), &TarOptions::default());
        assert!(failure.contains(what), "{failure}");
    }
    let most = archive_of(&|header| {
        header.set_uid(u32::MAX.into());
        header.set_mtime((1 << 63) - 1);
    });
    let input = TarInput::Stream(Box::new(std::io::Cursor::new(most)));
    let tree = read_tar(input, &TarOptions::default()).unwrap();
    let node = tree.node(tree.child(Tree::ROOT, b"a").unwrap());
    assert_eq!((node.uid, node.mtime.seconds), (u32::MAX, i64::MAX));
}

#[test]
fn sizes_whose_sum_has_more_than_64_bits_are_refused() {
    let mut archive = tar::Builder::new(Vec::new());
    for name in ["a", "b"] {
        let size = (1_u64 << 63).to_string();
        let keys = [
            ("GNU.sparse.name", name.as_bytes()),
            ("GNU.sparse.realsize", size.as_bytes()),
        ];
        archive.append_pax_extensions(keys).unwrap();
        archive.append_data(&mut header(), name, &[][..]).unwrap();
    }
    let mut options = TarOptions::default();
    options.limits.total_bytes = u64::MAX - 1;
    let failure = failure(archive.into_inner().unwrap(), &options);
    assert!(failure.contains("bytes of all files"), "{failure}");
}
