//! Writable volumes through real mounts: an in-memory driver below, ordinary system calls above.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_engine::Volume;
use forerun_fuse::{Mount, MountOptions, Operation, mount_volume};
use forerun_io::Observer;
use forerun_testkit::{MemVolume, eventually};
use forerun_vfs::FileSystemMut;
use rustix::fs::{FallocateFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::common::{Place, can_mount, refused, run};

const MIB: usize = 1 << 20;

pub struct Test {
    fs: Arc<MemVolume>,
    pub mount: Mount,
    place: Place,
}

impl Test {
    fn of(name: &str, fs: MemVolume, options: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let (place, fs) = (Place::new(name), Arc::new(fs));
        let driver: Arc<dyn FileSystemMut> = Arc::<MemVolume>::clone(&fs);
        let volume = Volume::new(driver, fs.device(), Arc::<Observer>::default());
        let options = MountOptions::parse(options).unwrap();
        let mount = mount_volume(Arc::new(volume), &place.mnt(), &options).unwrap();
        Some(Self { fs, mount, place })
    }

    pub fn new(name: &str) -> Option<Self> {
        Self::of(name, MemVolume::in_memory(64 * MIB, 4096), "rw")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.mnt().join(name)
    }
}

pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let mix = |n: usize| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed;
    (0..len).map(mix).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_are_made_written_read_and_removed() {
    let Some(test) = Test::new("rw_files") else {
        return;
    };
    let bytes = pattern(1, 3 * MIB + 17);
    fs::write(test.path("a"), &bytes).unwrap();
    assert!(fs::read(test.path("a")).unwrap() == bytes);
    fs::create_dir(test.path("dir")).unwrap();
    fs::write(test.path("dir/b"), b"small").unwrap();
    assert_eq!(names(&test.path("")), ["a", "dir"]);
    let metadata = fs::metadata(test.path("a")).unwrap();
    assert_eq!(metadata.len(), bytes.len() as u64);
    assert_eq!(metadata.blocks(), (bytes.len() as u64).div_ceil(4096) * 8);
    refused(fs::remove_dir(test.path("dir")), Errno::NOTEMPTY);
    refused(fs::remove_file(test.path("dir")), Errno::ISDIR);
    refused(fs::create_dir(test.path("a")), Errno::EXIST);
    refused(fs::create_dir(test.path("a/x")), Errno::NOTDIR);
    fs::remove_file(test.path("dir/b")).unwrap();
    fs::remove_dir(test.path("dir")).unwrap();
    fs::remove_file(test.path("a")).unwrap();
    assert!(names(&test.path("")).is_empty());
    refused(fs::read(test.path("a")), Errno::NOENT);
    eventually("all space is free", || {
        let space = test.fs.space().unwrap();
        space.free == space.blocks
    });
}

#[test]
fn what_was_written_is_there_after_the_page_cache_is_dropped() {
    let Some(test) = Test::new("rw_cache") else {
        return;
    };
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(test.path("a"))
        .unwrap();
    let mut model = vec![0; 300_000];
    for n in 0..200_u64 {
        let (at, bytes) = (
            (n * 7919) % 290_000,
            pattern(n as u8, 1 + (n as usize * 37) % 9000),
        );
        let end = (at as usize + bytes.len()).min(model.len());
        let bytes = &bytes[..end - at as usize];
        file.write_all_at(bytes, at).unwrap();
        model[at as usize..end].copy_from_slice(bytes);
    }
    let len = file.metadata().unwrap().len() as usize;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut out = Vec::new();
    File::open(test.path("a"))
        .unwrap()
        .read_to_end(&mut out)
        .unwrap();
    assert!(out == model[..len]);
}

#[test]
fn an_open_file_outlives_its_name() {
    let Some(test) = Test::new("rw_unlinked") else {
        return;
    };
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(test.path("a"))
        .unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(test.path("a")).unwrap();
    fs::write(test.path("a"), b"another").unwrap();
    file.write_all(b" after").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after");
    assert_eq!(fs::read(test.path("a")).unwrap(), b"another");
    let used = |test: &Test| {
        let space = test.fs.space().unwrap();
        space.blocks - space.free
    };
    assert_eq!(used(&test), 2);
    drop(file);
    eventually("its space is free", || used(&test) == 1);
}

#[test]
fn renames() {
    let Some(test) = Test::new("rw_rename") else {
        return;
    };
    let (a, b) = (test.path("a"), test.path("dir/b"));
    fs::create_dir(test.path("dir")).unwrap();
    fs::write(&a, b"a").unwrap();
    let inode = fs::metadata(&a).unwrap().ino();
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().ino(), inode);
    refused(fs::metadata(&a), Errno::NOENT);
    fs::write(&a, b"again").unwrap();
    let with = |flags| {
        let cwd = rustix::fs::CWD;
        renameat_with(cwd, &a, cwd, &b, flags).map_err(std::io::Error::from)
    };
    refused(with(RenameFlags::NOREPLACE), Errno::EXIST);
    refused(with(RenameFlags::EXCHANGE), Errno::INVAL);
    assert_eq!(fs::read(&b).unwrap(), b"a");
    fs::rename(&a, &b).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"again");
    refused(
        fs::rename(test.path("dir"), test.path("dir/x")),
        Errno::INVAL,
    );
    fs::create_dir(test.path("full")).unwrap();
    fs::write(test.path("full/x"), b"").unwrap();
    refused(
        fs::rename(test.path("dir"), test.path("full")),
        Errno::NOTEMPTY,
    );
    refused(fs::rename(&b, test.path("full")), Errno::ISDIR);
    refused(fs::rename(test.path("full"), &b), Errno::NOTDIR);
}

#[test]
fn lengths_times_and_modes() {
    let Some(test) = Test::new("rw_setattr") else {
        return;
    };
    let path = test.path("a");
    fs::write(&path, pattern(3, 10_000)).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 5000);
    file.set_len(20_000).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(bytes[..5000] == pattern(3, 5000) && bytes[5000..].iter().all(|b| *b == 0));
    let then = UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let times = fs::FileTimes::new().set_modified(then).set_accessed(then);
    file.set_times(times).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(
        (metadata.modified().unwrap(), metadata.accessed().unwrap()),
        (then, then)
    );
    let before = SystemTime::now() - Duration::from_secs(1);
    file.write_all_at(b"x", 0).unwrap();
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > before);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    refused(
        std::os::unix::fs::chown(&path, Some(12_345), None),
        Errno::PERM,
    );
    std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    // Truncates the existing file.
    drop(File::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    refused(
        std::os::unix::fs::symlink("a", test.path("link")),
        Errno::PERM,
    );
    refused(fs::hard_link(&path, test.path("link")), Errno::PERM);
    refused(
        fs::write(test.path(&"x".repeat(256)), b""),
        Errno::NAMETOOLONG,
    );
}

#[test]
fn preallocation_holes_and_what_is_refused_of_them() {
    let Some(test) = Test::new("rw_fallocate") else {
        return;
    };
    let file = File::create(test.path("a")).unwrap();
    let allocate = |flags, offset, len| {
        rustix::fs::fallocate(&file, flags, offset, len).map_err(std::io::Error::from)
    };
    allocate(FallocateFlags::KEEP_SIZE, 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    assert_eq!(file.metadata().unwrap().blocks(), 25 * 8);
    allocate(FallocateFlags::empty(), 0, 50_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 50_000);
    for flags in [
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
    ] {
        refused(allocate(flags, 0, 4096), Errno::OPNOTSUPP);
    }
    file.write_all_at(&[1; 5000], 0).unwrap();
    let seek = |to| rustix::fs::seek(&file, to);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(5000));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(0));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(5000)), Err(Errno::NXIO));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(60_000)), Err(Errno::NXIO));
}

#[test]
fn a_full_volume_says_so_to_the_write_that_met_it() {
    let fs = MemVolume::in_memory(4 * MIB, 4096);
    let Some(test) = Test::of("rw_full", fs, "rw") else {
        return;
    };
    let error = fs::write(test.path("a"), vec![1; 5 * MIB]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let stat = rustix::fs::statvfs(test.path("")).unwrap();
    assert_eq!((stat.f_blocks, stat.f_bsize), (1024, 4096));
    fs::remove_file(test.path("a")).unwrap();
    // The space of an unlinked file can be reused at once.
    fs::write(test.path("b"), vec![2; 4 * MIB]).unwrap();
    assert_eq!(rustix::fs::statvfs(test.path("")).unwrap().f_bfree, 0);
    test.fs.break_down();
    refused(fs::write(test.path("c"), b""), Errno::ROFS);
    assert!(fs::read(test.path("b")).unwrap() == vec![2; 4 * MIB]);
}

#[test]
fn what_is_asked_to_be_durable_is_and_the_rest_by_and_by() {
    let Some(test) = Test::new("rw_sync") else {
        return;
    };
    let file = File::create(test.path("a")).unwrap();
    assert_eq!(test.fs.syncs(), 0);
    file.sync_all().unwrap();
    assert_eq!(test.fs.syncs(), 1);
    File::open(test.path("")).unwrap().sync_all().unwrap();
    assert_eq!(test.fs.syncs(), 2);
    assert!(!test.fs.is_dirty(), "sync of the root is a sync of all");
    fs::write(test.path("c"), b"").unwrap();
    assert!(test.fs.is_dirty());
    eventually("it becomes clean by itself", || !test.fs.is_dirty());
    fs::write(test.path("b"), b"").unwrap();
    assert!(test.fs.is_dirty());
    drop(file);
    let Test {
        fs,
        mut mount,
        place,
    } = test;
    mount.unmount().unwrap();
    mount.wait().unwrap();
    assert!(!fs.is_dirty(), "the end of the mount makes all durable");
    drop(place);
}

#[test]
fn the_kernel_asks_no_more_than_it_must() {
    let Some(test) = Test::new("rw_requests") else {
        return;
    };
    for n in 0..100 {
        fs::write(test.path(&format!("file {n}")), b"contents").unwrap();
    }
    let counts = test.mount.requests();
    // A LOOKUP, CREATE, WRITE and RELEASE per file.
    assert_eq!(counts.get(Operation::Lookup), 100);
    assert_eq!(counts.get(Operation::Write), 200);
    assert!(counts.get(Operation::Flush) <= 1, "{counts}");
    assert!(counts.get(Operation::Getxattr) <= 1, "{counts}");
    fs::write(test.path("large"), vec![1; 8 * MIB]).unwrap();
    let large = test.mount.requests().get(Operation::Write) - 200;
    assert!(large <= 10, "{large} requests to make a file of 8 MiB");
    for n in 0..100 {
        fs::metadata(test.path(&format!("file {n}"))).unwrap();
    }
    let before = test.mount.requests().get(Operation::Lookup);
    for n in 0..100 {
        fs::metadata(test.path(&format!("file {n}"))).unwrap();
    }
    assert_eq!(test.mount.requests().get(Operation::Lookup), before);
}

#[test]
fn what_the_kernel_forgets_is_forgotten() {
    let Some(test) = Test::new("rw_forget") else {
        return;
    };
    for n in 0..1000 {
        File::create(test.path(&n.to_string())).unwrap();
    }
    assert_eq!(names(&test.path("")).len(), 1000);
    for n in 0..1000 {
        fs::remove_file(test.path(&n.to_string())).unwrap();
    }
    eventually("only the root is left", || test.fs.nodes() == 1);
    eventually("all were forgotten", || {
        test.mount.requests().get(Operation::Forget) >= 1000
    });
}

#[test]
fn names_in_any_case() {
    let fs = MemVolume::in_memory(4 * MIB, 4096).folding_case();
    let Some(test) = Test::of("rw_case", fs, "rw") else {
        return;
    };
    refused(fs::metadata(test.path("NAME")), Errno::NOENT);
    fs::write(test.path("Name"), b"one").unwrap();
    // A name that was missing before exists now.
    assert_eq!(fs::read(test.path("NAME")).unwrap(), b"one");
    assert_eq!(fs::read(test.path("name")).unwrap(), b"one");
    assert_eq!(names(&test.path("")), ["Name"]);
    // A file removed under one name is gone under all.
    fs::remove_file(test.path("nAME")).unwrap();
    for name in ["nAME", "NAME", "name"] {
        refused(fs::metadata(test.path(name)), Errno::NOENT);
    }
    eventually("the first name is gone too", || {
        fs::metadata(test.path("Name")).is_err()
    });
    fs::write(test.path("NAME"), b"two").unwrap();
    assert_eq!(fs::read(test.path("Name")).unwrap(), b"two");
    fs::create_dir(test.path("Dir")).unwrap();
    fs::rename(test.path("name"), test.path("dir/Moved")).unwrap();
    eventually("the old name is gone", || {
        fs::metadata(test.path("NAME")).is_err()
    });
    assert_eq!(fs::read(test.path("DIR/MOVED")).unwrap(), b"two");
    fs::remove_file(test.path("DIR/moved")).unwrap();
    fs::remove_dir(test.path("DIR")).unwrap();
    assert!(names(&test.path("")).is_empty());
    eventually("only the root is left", || test.fs.nodes() == 1);
}

#[test]
fn ordinary_tools_on_a_tree() {
    let Some(test) = Test::new("rw_tools") else {
        return;
    };
    let source = test.place.dir().join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    for n in 0..200_usize {
        let dir = ["", "deep", "deep/er"][n % 3];
        let path = source.join(dir).join(format!("file {n}"));
        fs::write(path, pattern(n as u8, n * 531)).unwrap();
    }
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(test.place.dir());
        let (ok, text) = run(&mut command);
        assert!(ok, "{script}: {text}");
    };
    shell("cp -r source mnt/copy && diff -r source mnt/copy");
    shell("cp -r mnt/copy mnt/again && diff -r source mnt/again");
    shell("tar -C mnt -cf mnt/all.tar copy && mkdir mnt/x && tar -C mnt/x -xf mnt/all.tar");
    shell("diff -r source mnt/x/copy");
    shell("dd if=/dev/urandom of=mnt/random bs=70000 count=30 status=none && cp mnt/random saved");
    shell(
        "dd if=saved of=mnt/random bs=4096 conv=notrunc,fsync status=none && cmp saved mnt/random",
    );
    shell(
        "truncate -s 1M mnt/random && truncate -s 3M mnt/random && touch -d 2020-01-01 mnt/random",
    );
    shell("head -c 1M saved > want && truncate -s 3M want && cmp want mnt/random");
    shell("echo one >> mnt/log; echo two >> mnt/log; printf 'one\\ntwo\\n' | cmp - mnt/log");
    shell("mv mnt/again mnt/copy/again && find mnt | wc -l && mv mnt/copy mnt/moved");
    shell("diff -r source mnt/moved/again && rm -r mnt/moved mnt/x mnt/all.tar mnt/random mnt/log");
    assert!(names(&test.path("")).is_empty());
    eventually("all space is free", || {
        let space = test.fs.space().unwrap();
        space.free == space.blocks
    });
}

#[test]
fn labels_and_trimming() {
    let Some(test) = Test::new("rw_ioctl") else {
        return;
    };
    let (ok, text) = run(Command::new("fstrim").arg("-v").arg(test.path("")));
    assert!(ok && text.contains("64 MiB"), "{text}");
    test.fs.set_label(b"LABEL").unwrap();
    assert_eq!(test.fs.label().unwrap(), b"LABEL");
}

#[test]
fn many_writers_and_readers_at_once() {
    let Some(test) = Test::new("rw_parallel") else {
        return;
    };
    std::thread::scope(|scope| {
        for n in 0..8_u8 {
            let test = &test;
            scope.spawn(move || {
                let dir = test.path(&format!("dir {n}"));
                fs::create_dir(&dir).unwrap();
                for step in 0..30_u8 {
                    let path = dir.join(step.to_string());
                    let bytes = pattern(n ^ step, 1000 * usize::from(step));
                    fs::write(&path, &bytes).unwrap();
                    assert!(fs::read(&path).unwrap() == bytes);
                    if step % 2 == 0 {
                        fs::rename(&path, dir.join(format!("kept {step}"))).unwrap();
                    } else {
                        fs::remove_file(&path).unwrap();
                    }
                }
                assert_eq!(names(&dir).len(), 15);
                fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
    assert!(names(&test.path("")).is_empty());
}
