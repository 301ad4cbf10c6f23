//! Answers that the kernel may cache, and requests that it therefore does not send.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use forerun_fuse::{Mount, Operation};
use forerun_testkit::{MemFsBuilder, MemImage, Piece, eventually};
use forerun_vfs::{ACL_ACCESS, Device, FileType, PosixAcl, VolumeInfo};
use rustix::fs::SeekFrom as Whence;
use rustix::io::Errno;

use crate::common::{self, Place, can_mount, ensure, mount_memory, undisturbed};

fn count(mount: &Mount, operation: Operation) -> u64 {
    mount.requests().get(operation)
}

fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

fn sample() -> MemImage {
    let mut builder = MemFsBuilder::new();
    let small = builder.file("dir/small", [Piece::Stored(b"hello".to_vec())]);
    builder.metadata(small, |metadata| {
        (metadata.uid, metadata.gid, metadata.mode) = (12, 34, 0o4754);
        metadata.mtime.seconds = 1_000_000_000;
    });
    builder.file(
        "sparse",
        [
            Piece::Stored(vec![1; 8192]),
            Piece::Zero(1 << 20),
            Piece::Stored(vec![2; 4096]),
            Piece::Zero(8192),
        ],
    );
    builder.symlink("link", b"dir/small");
    let (major, minor) = (259, 70_000);
    builder.special("disk", FileType::BlockDevice, Device { major, minor });
    builder.special("pipe", FileType::Fifo, Device::default());
    builder.build()
}

#[test]
fn no_message_twice_and_no_open_at_all() {
    if !can_mount() {
        return;
    }
    undisturbed(|| {
        let place = Place::new("messages");
        let mount = mount_memory(&sample(), &place, "");
        let mnt = place.mnt();
        let look = || {
            assert_eq!(fs::read(mnt.join("dir/small")).unwrap(), b"hello");
            let target = fs::read_link(mnt.join("link")).unwrap();
            assert_eq!(target, Path::new("dir/small"));
            let missing = fs::metadata(mnt.join("missing")).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
            assert_eq!(fs::read_dir(&mnt).unwrap().count(), 5);
            fs::metadata(mnt.join("sparse")).unwrap();
            rustix::fs::access(mnt.join("dir"), rustix::fs::Access::READ_OK).unwrap();
        };
        look();
        let first = mount.requests();
        (0..20).for_each(|_| look());
        ensure(mount.requests() == first, mount.requests())?;
        // The kernel learns from one request of each kind not to send more. A process forked by
        // another test holds our files until it execs; if it closes them at the same time as this
        // one, there are two.
        ensure(first.get(Operation::Flush) <= 1, &first)?;
        for (operation, at_most) in [
            (Operation::Open, 1),
            (Operation::Opendir, 1),
            (Operation::Access, 1),
            (Operation::Release, 0),
            (Operation::Releasedir, 0),
            (Operation::Readdir, 0),
            (Operation::Readlink, 1),
        ] {
            assert!(first.get(operation) <= at_most, "{first}");
        }
        Ok(())
    });
}

#[test]
fn a_listing_brings_the_attributes_along() {
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    for n in 0..1000 {
        builder.file(&format!("file-{n:04}"), [Piece::Stored(vec![0; n])]);
    }
    let image = builder.build();
    undisturbed(|| {
        let place = Place::new("readdirplus");
        let mount = mount_memory(&image, &place, "");
        let mut sizes: Vec<u64> = fs::read_dir(place.mnt())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, (0..1000).collect::<Vec<u64>>());
        let requests = mount.requests();
        assert!(requests.get(Operation::Readdirplus) < 60, "{requests}");
        let asked = requests.get(Operation::Lookup) + requests.get(Operation::Getattr);
        // Four files of the first answers have none.
        ensure(asked <= 9, requests)
    });
}

#[test]
fn a_thread_that_wants_names_gets_names() {
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    for n in 0..3000 {
        let path = format!("dir-{}/file-{n:04}", n % 3);
        builder.file(&path, [Piece::Stored(vec![0; n])]);
    }
    let image = builder.build();
    undisturbed(|| {
        let place = Place::new("names");
        let mount = mount_memory(&image, &place, "");
        let dirs: Vec<_> = fs::read_dir(place.mnt())
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        let list = |dir: &fs::DirEntry| -> Vec<_> {
            let entries = fs::read_dir(dir.path()).unwrap();
            entries.map(|entry| entry.unwrap()).collect()
        };
        let numbers: HashSet<u64> = dirs.iter().flat_map(list).map(|it| it.ino()).collect();
        assert_eq!(numbers.len(), 3000);
        assert!(!numbers.contains(&0));
        let lookups = count(&mount, Operation::Lookup);
        ensure(lookups == 0, mount.requests())?;
        // The kernel has kept the listings, and another thread finds no attributes in them.
        let sizes = thread::spawn({
            let place = place.mnt();
            move || -> Vec<u64> {
                (0..3000)
                    .map(|n| place.join(format!("dir-{}/file-{n:04}", n % 3)))
                    .map(|path| fs::symlink_metadata(path).unwrap().len())
                    .collect()
            }
        });
        assert_eq!(sizes.join().unwrap(), (0..3000).collect::<Vec<u64>>());
        let looked_up = count(&mount, Operation::Lookup);
        // A few files of the first directory, and most files of the others.
        ensure((1000..2000).contains(&looked_up), mount.requests())
    });
}

#[test]
fn a_walk_after_one_for_names_finds_attributes() {
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    for n in 0..4000 {
        builder.file(
            &format!("dir-{}/file-{n:04}", n % 4),
            [Piece::Stored(vec![0; n])],
        );
    }
    let image = builder.build();
    undisturbed(|| {
        let place = Place::new("names-then-all");
        let mount = mount_memory(&image, &place, "");
        let walk = |stat: bool| {
            let top = place.mnt();
            let walked = thread::spawn(move || {
                let mut files = 0;
                for dir in fs::read_dir(top).unwrap() {
                    for entry in fs::read_dir(dir.unwrap().path()).unwrap() {
                        let entry = entry.unwrap();
                        assert!(!stat || entry.metadata().unwrap().is_file());
                        files += 1;
                    }
                }
                files
            });
            assert_eq!(walked.join().unwrap(), 4000);
        };
        walk(false);
        walk(true);
        let looked_up = count(&mount, Operation::Lookup);
        // The walk looks up the files of one directory, and is then given attributes.
        ensure(looked_up < 1200, mount.requests())
    });
}

#[test]
fn attributes() {
    if !can_mount() {
        return;
    }
    let place = Place::new("attributes");
    let mount = mount_memory(&sample(), &place, "");
    let mnt = place.mnt();
    let small = fs::metadata(mnt.join("dir/small")).unwrap();
    assert_eq!(
        (small.uid(), small.gid(), small.mode()),
        (12, 34, 0o10_4754)
    );
    assert_eq!((small.len(), small.blocks(), small.blksize()), (5, 1, 4096));
    assert_eq!(small.mtime(), 1_000_000_000);
    let disk = fs::symlink_metadata(mnt.join("disk")).unwrap();
    assert!(disk.file_type().is_block_device());
    assert_eq!(rustix::fs::major(disk.rdev()), 259);
    assert_eq!(rustix::fs::minor(disk.rdev()), 70_000);
    assert!(
        fs::symlink_metadata(mnt.join("pipe"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    // The driver's IDs are inode numbers; the root's ID is 1 here.
    assert_eq!(fs::metadata(&mnt).unwrap().ino(), 1);
    drop(mount);

    let mount = mount_memory(&sample(), &place, "uid=1000,gid=100,umask=027");
    let small = fs::metadata(mnt.join("dir/small")).unwrap();
    assert_eq!(
        (small.uid(), small.gid(), small.mode()),
        (1000, 100, 0o10_4750)
    );
    assert_eq!(fs::metadata(&mnt).unwrap().mode() & 0o777, 0o750);
    drop(mount);
}

#[test]
fn statfs_tells_the_format_s_block_size() {
    if !can_mount() {
        return;
    }
    for options in ["", "nolargeblocks"] {
        let mut builder = MemFsBuilder::new();
        let mut volume = VolumeInfo::new("memfs", 1_000_001, 1024);
        volume.inodes = Some(77);
        builder
            .volume(volume)
            .file("file", [Piece::Stored(vec![0; 100])]);
        let place = Place::new("statfs");
        let _mount = mount_memory(&builder.build(), &place, options);
        let all = rustix::fs::statvfs(place.mnt()).unwrap();
        assert_eq!(
            (all.f_bsize, all.f_frsize, all.f_files),
            (1024, 1024, 77),
            "{options}"
        );
        assert!(all.f_blocks > 0 && all.f_bfree == 0 && all.f_namemax == 255);
    }
}

#[test]
fn holes_and_data() {
    if !can_mount() {
        return;
    }
    let place = Place::new("seek");
    let mount = mount_memory(&sample(), &place, "");
    let file = File::open(place.mnt().join("sparse")).unwrap();
    let len = 8192 + (1 << 20) + 4096 + 8192;
    assert_eq!(file.metadata().unwrap().len(), len);
    let second = 8192 + (1 << 20);
    for (whence, expected) in [
        (Whence::Data(0), Ok(0)),
        (Whence::Hole(0), Ok(8192)),
        (Whence::Data(8192), Ok(second)),
        (Whence::Data(second + 1), Ok(second + 1)),
        (Whence::Hole(second), Ok(second + 4096)),
        (Whence::Data(second + 4096), Err(Errno::NXIO)),
        (Whence::Hole(len - 1), Ok(len - 1)),
        (Whence::Hole(len), Err(Errno::NXIO)),
        (Whence::Data(len + 5), Err(Errno::NXIO)),
    ] {
        assert_eq!(rustix::fs::seek(&file, whence), expected, "{whence:?}");
    }
    assert!(count(&mount, Operation::Lseek) > 0);
    let mut file = file;
    file.seek(SeekFrom::End(-8193)).unwrap();
    let mut byte = [9; 2];
    file.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [2, 0]);
}

#[test]
fn no_questions_for_attributes_that_no_node_has() {
    if !can_mount() {
        return;
    }
    let place = Place::new("xattr");
    let mount = mount_memory(&sample(), &place, "");
    let path = place.mnt().join("dir/small");
    let mut room = [0; 64];
    for _ in 0..10 {
        let value = rustix::fs::getxattr(&path, "user.x", &mut room);
        assert_eq!(value, Err(Errno::OPNOTSUPP));
        // Same answer as the kernel's drivers: on an error tar would warn about every file.
        assert_eq!(rustix::fs::listxattr(&path, &mut room), Ok(0));
    }
    assert!(
        count(&mount, Operation::Getxattr) <= 1,
        "{}",
        mount.requests()
    );
}

#[test]
fn extended_attributes_where_there_are_some() {
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    let node = builder.file("file", [Piece::Stored(vec![1])]);
    builder
        .xattr(node, b"user.one", b"1")
        .xattr(node, b"user.empty", b"");
    let place = Place::new("xattrs");
    let _mount = mount_memory(&builder.build(), &place, "");
    let path = place.mnt().join("file");
    let mut room = [0; 64];
    assert_eq!(rustix::fs::getxattr(&path, "user.one", &mut room), Ok(1));
    assert_eq!(room[0], b'1');
    assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut room), Ok(0));
    assert_eq!(
        rustix::fs::getxattr(&path, "user.none", &mut room),
        Err(Errno::NODATA)
    );
    let len = rustix::fs::listxattr(&path, &mut room).unwrap();
    assert_eq!(&room[..len], b"user.one\0user.empty\0");
    assert_eq!(
        rustix::fs::listxattr(&path, &mut room[..3]),
        Err(Errno::RANGE)
    );
}

/// Creates 50 files in a directory, one of which has an attribute of this name.
fn files_with(name: &[u8], value: &[u8]) -> MemFsBuilder {
    let mut builder = MemFsBuilder::new();
    let nodes: Vec<_> = (0..50)
        .map(|n| builder.file(&format!("dir/{n}"), []))
        .collect();
    builder.xattr(nodes[7], name, value);
    builder
}

#[test]
fn ls_asks_once_for_what_no_node_has() {
    if !can_mount() {
        return;
    }
    let place = Place::new("no-lists");
    let image = files_with(b"user.one", b"1").build();
    let mount = mount_memory(&image, &place, "");
    let dir = place.mnt().join("dir");
    let mut room = [0; 64];
    let list = rustix::fs::getxattr(dir.join("7"), "system.posix_acl_access", &mut room);
    assert_eq!(list, Err(Errno::OPNOTSUPP));
    // Labels are searched for only after a program has asked for some.
    eventually("all files need one question for each attribute", || {
        let before = count(&mount, Operation::Getxattr);
        let listed = Command::new("ls").arg("-l").arg(&dir).output().unwrap();
        assert!(listed.status.success());
        count(&mount, Operation::Getxattr) - before < 5
    });
    let one = rustix::fs::getxattr(dir.join("7"), "user.one", &mut room);
    assert_eq!(one, Ok(1));
    let two = rustix::fs::getxattr(dir.join("7"), "user.two", &mut room);
    assert_eq!(two, Err(Errno::NODATA));
}

#[test]
fn lists_are_shown_where_a_node_has_one() {
    if !can_mount() {
        return;
    }
    let place = Place::new("lists");
    let text = b"user::rw-,user:7:r--,group::r--,mask::r--,other::---";
    let list = PosixAcl::parse(text).unwrap().to_bytes();
    let mount = mount_memory(&files_with(ACL_ACCESS, &list).build(), &place, "");
    let dir = place.mnt().join("dir");
    let shown = Command::new("ls").arg("-l").arg(&dir).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let marked: Vec<_> = shown
        .lines()
        .filter(|line| line.get(10..11) == Some("+"))
        .collect();
    assert!(marked.len() == 1 && marked[0].ends_with(" 7"), "{shown}");
    let mut room = [0; 256];
    // More requests than needed to trigger a search of the image.
    for n in (0..50).cycle().take(200).filter(|n| *n != 7) {
        let path = dir.join(n.to_string());
        let none = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut room);
        assert_eq!(none, Err(Errno::NODATA));
    }
    let len = rustix::fs::getxattr(dir.join("7"), "system.posix_acl_access", &mut room);
    assert_eq!(room[..len.unwrap()], list);
    assert!(count(&mount, Operation::Getxattr) > 200);
}

#[test]
fn nothing_can_be_written_even_when_remounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new("erofs");
    let mount = mount_memory(&sample(), &place, "");
    let mnt = place.mnt();
    let attempts = || {
        [
            File::options()
                .write(true)
                .open(mnt.join("dir/small"))
                .and_then(|mut file| {
                    use std::io::Write;
                    file.write_all(b"x")
                }),
            File::create(mnt.join("new")).map(drop),
            fs::create_dir(mnt.join("new")),
            fs::remove_file(mnt.join("link")),
            fs::remove_dir(mnt.join("dir")),
            fs::rename(mnt.join("link"), mnt.join("link2")),
            fs::hard_link(mnt.join("sparse"), mnt.join("sparse2")),
            std::os::unix::fs::symlink("a", mnt.join("b")),
            fs::set_permissions(mnt.join("sparse"), fs::Permissions::from_mode(0o600)),
            File::options()
                .write(true)
                .open(mnt.join("sparse"))
                .and_then(|file| file.set_len(5)),
        ]
    };
    for (n, result) in attempts().into_iter().enumerate() {
        assert_eq!(
            result.unwrap_err().kind(),
            ErrorKind::ReadOnlyFilesystem,
            "{n}"
        );
    }
    assert_eq!(count(&mount, Operation::Write), 0, "the kernel knows");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount_remount(&mnt, flags, "").unwrap();
    for (n, result) in attempts().into_iter().enumerate() {
        assert_eq!(errno(&result.unwrap_err()), Some(Errno::ROFS), "{n}");
    }
    assert!(count(&mount, Operation::Write) > 0);
    assert_eq!(fs::read(mnt.join("dir/small")).unwrap(), b"hello");
}

#[test]
fn names_of_any_bytes_and_too_long_ones() {
    use std::os::unix::ffi::OsStringExt;
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    let long = "x".repeat(255);
    builder.file(&long, [Piece::Stored(vec![1])]);
    let node = builder.file("plain", [Piece::Stored(vec![2])]);
    builder.raw_entry(MemFsBuilder::ROOT, b"\xff\n\\ ", node);
    let place = Place::new("names");
    let _mount = mount_memory(&builder.build(), &place, "");
    assert_eq!(fs::read(place.mnt().join(&long)).unwrap(), [1]);
    let odd = OsString::from_vec(b"\xff\n\\ ".to_vec());
    assert_eq!(fs::read(place.mnt().join(&odd)).unwrap(), [2]);
    let names: Vec<_> = fs::read_dir(place.mnt())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(names.contains(&odd));
    let error = fs::metadata(place.mnt().join("y".repeat(256))).unwrap_err();
    assert_eq!(errno(&error), Some(Errno::NAMETOOLONG));
}

#[test]
fn other_users_see_only_what_the_image_permits() {
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    let secret = builder.file("secret", [Piece::Stored(b"s".to_vec())]);
    builder.metadata(secret, |metadata| metadata.mode = 0o600);
    builder.file("public", [Piece::Stored(b"p".to_vec())]);
    let image = builder.build();
    let place = Place::new("others");
    place.give_away();
    let read = |name: &str| common::run(common::as_nobody("cat").arg(place.mnt().join(name)));
    let mount = mount_memory(&image, &place, "");
    assert!(
        !read("public").0,
        "without allow_other no other user sees anything"
    );
    drop(mount);
    let _mount = mount_memory(&image, &place, "allow_other");
    assert_eq!(read("public"), (true, "p".to_string()));
    assert!(
        !read("secret").0,
        "allow_other does not make secrets public"
    );
}
