//! Devices that fail at one request: the volume refuses further changes, stays marked dirty, and
//! suffers no further damage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use forerun_exfat::Exfat;
use forerun_io::{BlockDevice, MemorySource};
use forerun_testkit::device::Errno;
use forerun_testkit::exfat_judge::{What, judge};
use forerun_testkit::powercut::Snapshot;
use forerun_vfs::{Changes, Error, FileSystem, FileSystemMut, NodeId};

use crate::common::{
    Request, TestDevice, assert_sound, create, fsck, list, mkdir, mkfs, open, open_mut, read, write,
};

/// Runs a workload with every kind of change, and returns the first error.
fn work(fs: &Exfat, device: &dyn BlockDevice) -> Result<(), Error> {
    let root = fs.root();
    let a = create(fs, root, "a")?;
    write(fs, device, a, 0, &[1; 3000])?;
    let dir = mkdir(fs, root, "dir")?;
    fs.rename((root, b"a"), (dir, b"b"), true)?;
    let b = create(fs, dir, "c")?;
    write(fs, device, b, 9000, b"x")?;
    fs.unlink(dir, b"b")?;
    fs.sync_all()
}

#[test]
fn each_write_fails_once() {
    let Some(image) = mkfs(4 << 20, &["-c", "512"]) else {
        return;
    };
    for dirsync in [false, true] {
        for n in 0..60 {
            let device = TestDevice::new(&image);
            let fs = open_mut(&device, |with| with.dirsync = dirsync);
            // Tests only metadata, because the engine handles failures of its own requests.
            let outcome = {
                let root = fs.root();
                let made = create(&fs, root, "first");
                device.fail_after(n, Request::is_change, Errno::IO);
                made.and_then(|_| mkdir(&fs, root, "dir"))
                    .and_then(|dir| create(&fs, dir, "f").map(|f| (dir, f)))
                    .and_then(|(dir, f)| fs.allocate(f, 0..9000, false).map(|()| dir))
                    .and_then(|dir| fs.rename((root, b"first"), (dir, b"f"), true))
                    .and_then(|()| fs.sync_all())
            };
            device.unhook();
            if outcome.is_ok() {
                assert!(n > 4);
                break;
            }
            assert!(matches!(outcome, Err(Error::Write { .. })), "{outcome:?}");
            device.take_log();
            let again = create(&fs, fs.root(), "more");
            assert!(matches!(again, Err(Error::ReadOnly(_))), "{again:?}");
            assert!(fs.sync_all().is_err());
            // Nothing was written after the failure.
            assert_eq!(device.take_changes(), []);
            open(&device.to_vec());
        }
    }
}

#[test]
fn each_read_fails_once() {
    let Some(image) = mkfs(4 << 20, &["-c", "4K"]) else {
        return;
    };
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    work(&fs, &*device).unwrap();
    let image = device.to_vec();
    for n in 0..20 {
        let device = TestDevice::new(&image);
        let fs = open_mut(&device, |with| with.cache = 0);
        device.fail_after(n, Request::is_read, Errno::IO);
        let outcome = work(&fs, &*device);
        device.unhook();
        match outcome {
            Ok(()) => break,
            Err(Error::Io { .. }) => {
                let again = create(&fs, fs.root(), "more");
                // A failed listing is not a failed change.
                assert!(
                    matches!(again, Ok(_) | Err(Error::ReadOnly(_))),
                    "{again:?}"
                );
            }
            Err(Error::Exists) => {}
            Err(error) => panic!("{error}"),
        }
        drop(fs);
        assert_eq!(fsck(&device.to_vec()), None);
    }
}

#[test]
fn damage_stops_changes_unless_told_otherwise() {
    use forerun_exfat::fuzzing::{self, FAT};
    let mut image = fuzzing::image();
    // The chain of the fragmented file ends early.
    image[FAT + 32..FAT + 36].copy_from_slice(&u32::MAX.to_le_bytes());
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let outcome = fs.unlink(fs.root(), b"pieces");
    assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
    let outcome = fs.unlink(fs.root(), b"vendor");
    assert!(matches!(outcome, Err(Error::ReadOnly(_))), "{outcome:?}");
    // The driver writes only `VolumeDirty`.
    assert_eq!(
        device.take_changes(),
        [Request::Write(0..512), Request::Flush]
    );
    assert_eq!(device.to_vec()[106] & 2, 2, "VolumeDirty");

    let fs = open_mut(&device, |with| with.continue_on_error = true);
    let before = fs.space().unwrap().free;
    fs.unlink(fs.root(), b"pieces").unwrap();
    fs.unlink(fs.root(), b"vendor").unwrap();
    fs.sync_all().unwrap();
    assert_eq!(fs.lookup(fs.root(), b"pieces").unwrap(), None);
    // The clusters of the damaged file stay in use; those of the other file are free.
    assert_eq!(fs.space().unwrap().free, before + 1);
    assert_eq!(device.to_vec()[106] & 2, 2, "VolumeDirty");
}

#[test]
fn volume_dirty_stays_where_it_was_set() {
    let Some(mut image) = mkfs(4 << 20, &[]) else {
        return;
    };
    image[106] |= 2;
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |with| with.dirsync = true);
    create(&fs, fs.root(), "a").unwrap();
    fs.sync_all().unwrap();
    assert_eq!(device.to_vec()[106] & 2, 2);
    // Only the directory is written.
    let writes = device.take_log();
    let writes = writes.iter().filter(|request| request.is_write());
    assert_eq!(writes.count(), 1);
}

/// Creates a file with the byte 2 in all free clusters.
fn fill(fs: &Exfat, device: &dyn BlockDevice) {
    let Ok(file) = create(fs, fs.root(), "other") else {
        return;
    };
    let mut at = 0;
    for len in [64 << 9, 1 << 9] {
        while write(fs, device, file, at, &vec![2; len]).is_ok() {
            at += len as u64;
        }
    }
}

/// Creates names and a directory, and with `renames` renames files, up to the first error.
fn changes(fs: &Exfat, device: &dyn BlockDevice, renames: bool) -> Result<(), Error> {
    let root = fs.root();
    let new = create(fs, root, "new")?;
    write(fs, device, new, 0, &[1; 3000])?;
    let dir = mkdir(fs, root, "dir")?;
    for name in ["f", "g"] {
        let file = create(fs, dir, name)?;
        fs.allocate(file, 0..9000, false)?;
    }
    if renames {
        fs.rename((root, b"first"), (dir, b"f"), true)?;
        fs.rename((root, b"moved"), (dir, b"moved"), true)?;
        create(fs, root, &"n".repeat(250))?;
    }
    fs.sync_all()
}

#[test]
fn a_full_disk_below_the_volume_loses_nothing_and_ends_nothing() {
    let Some(image) = mkfs(4 << 20, &["-c", "512"]) else {
        return;
    };
    for (dirsync, renames) in [(false, false), (false, true), (true, true)] {
        for n in 0.. {
            let device = TestDevice::new(&image);
            let fs = open_mut(&device, |with| with.dirsync = dirsync);
            let root = fs.root();
            for name in ["first", "moved", "data"] {
                let file = create(&fs, root, name).unwrap();
                write(&fs, &*device, file, 0, &[1; 3000]).unwrap();
            }
            fs.sync_all().unwrap();
            device.fail_after(n, Request::is_write, Errno::NOSPC);
            let Err(error) = changes(&fs, &device.memory, renames) else {
                assert!(n > 4, "{n}");
                break;
            };
            assert!(error.is_full(), "{n}: {error}");
            // Later parts of a long name may exist without the first part.
            if let Some(told) = fsck(&device.to_vec()) {
                assert!(told.contains("image: clean"), "{n}: {told}");
            }
            // Clusters that are freed in memory must not be reused while the device still refers to
            // them.
            let _in_memory = [b"moved", &b"new"[..]].map(|name| fs.unlink(root, name));
            fill(&fs, &device.memory);
            let cut = device.to_vec();
            let then = open(&cut);
            let dir = then.lookup(then.root(), b"dir").unwrap();
            for dir in [Some(then.root()), dir].into_iter().flatten() {
                for name in [&b"moved"[..], b"new", b"first", b"f", b"data"] {
                    let Some(file) = then.lookup(dir, name).unwrap() else {
                        continue;
                    };
                    let bytes = read(&then, &MemorySource::new(cut.clone()), file);
                    assert!(!bytes.contains(&2), "{n}: bytes of another file");
                }
            }
            device.unhook();
            fs.sync_all().unwrap();
            let _where_it_was_made = fs.unlink(root, b"other");
            create(&fs, root, "later").unwrap();
            fs.finish().unwrap();
            let image = device.to_vec();
            assert_sound(&image);
            assert_eq!(image[106], 0, "VolumeFlags");
            let names = |fs: &Exfat| {
                let all = list(fs, fs.root());
                all.into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
            };
            assert_eq!(names(&open(&image)), names(&fs), "{n}");
        }
    }
}

/// Allocates clusters for a file `f` in `dir` and frees them, all in one commit.
type TakeAndGive = fn(&Exfat, NodeId) -> Result<(), Error>;

fn allocated(fs: &Exfat, dir: NodeId) -> Result<NodeId, Error> {
    let file = create(fs, dir, "f")?;
    fs.allocate(file, 0..9000, false)?;
    Ok(file)
}

const TAKE_AND_GIVE: [(&str, TakeAndGive); 5] = [
    ("replaced by one of another sector", |fs, dir| {
        allocated(fs, dir)?;
        fs.rename((fs.root(), b"first"), (dir, b"f"), true)
    }),
    ("replaced by one that needs more entries", |fs, dir| {
        allocated(fs, dir)?;
        fs.rename((fs.root(), b"vendor"), (dir, b"f"), true)
    }),
    ("replaced while in use", |fs, dir| {
        let file = allocated(fs, dir)?;
        fs.open(file)?;
        fs.rename((fs.root(), b"first"), (dir, b"f"), true)?;
        fs.release(file)
    }),
    ("moved and cut", |fs, dir| {
        let file = allocated(fs, dir)?;
        fs.rename((dir, b"f"), (fs.root(), b"moved"), true)?;
        let changes = Changes {
            size: Some(0),
            ..Changes::default()
        };
        fs.change(file, &changes).map(|_| ())
    }),
    ("removed", |fs, dir| {
        allocated(fs, dir)?;
        fs.unlink(dir, b"f")
    }),
];

#[test]
fn clusters_stay_marked_while_an_entry_on_the_device_names_them() {
    let image = forerun_exfat::fuzzing::image();
    let sound = |device: &TestDevice, what: &str| {
        let report = judge(&Snapshot::new(device.to_vec())).unwrap();
        for finding in &report.findings {
            let harms = matches!(finding.what, What::UsedButFree | What::CrossLink);
            assert!(!harms, "{what}: {finding}");
        }
    };
    for (what, work) in TAKE_AND_GIVE {
        for n in 0.. {
            let device = TestDevice::new(&image);
            let fs = open_mut(&device, |_| {});
            let first = create(&fs, fs.root(), "first").unwrap();
            fs.allocate(first, 0..1000, false).unwrap();
            let dir = mkdir(&fs, fs.root(), "sub").unwrap();
            fs.sync_all().unwrap();
            work(&fs, dir).unwrap();
            device.fail_after(n, Request::is_write, Errno::NOSPC);
            let outcome = fs.sync_all();
            device.unhook();
            let what = format!("{what}, {n} writes");
            sound(&device, &what);
            if outcome.is_ok() {
                assert!(n > 3, "{what}");
                break;
            }
            // On the next open, the driver completes the interrupted move.
            drop(fs);
            let fs = open_mut(&device, |_| {});
            for name in [&b"moved"[..], b"first"] {
                fs.lookup(fs.root(), name).unwrap();
            }
            let dir = fs.lookup(fs.root(), b"sub").unwrap();
            fs.lookup(dir.unwrap(), b"f").unwrap();
            fs.sync_all().unwrap();
            sound(&device, &format!("{what}, opened again"));
        }
    }
}

/// Asserts that the error reports a panic.
#[track_caller]
fn says_panicked<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("nothing may change after a panic");
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn after_a_panic_nothing_is_written_and_reads_go_on() {
    let Some(image) = mkfs(4 << 20, &["-c", "4K"]) else {
        return;
    };
    let (mut panics, mut cleared) = (0, 0);
    for n in 0.. {
        let device = TestDevice::new(&image);
        let fs = open_mut(&device, |with| {
            with.dirsync = n % 2 == 0;
            with.cache = 0;
        });
        create(&fs, fs.root(), "kept").unwrap();
        fs.sync(fs.root()).unwrap();
        let panicked = device.panic_after(n / 2);
        // The engine's part of a write is not tested here: its requests panic outside of the
        // driver's session.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let root = fs.root();
            let dir = mkdir(&fs, root, "dir")?;
            fs.rename((root, b"kept"), (dir, b"kept"), true)?;
            let file = create(&fs, root, "file")?;
            fs.allocate(file, 0..9000, false)?;
            fs.sync_all()
        }));
        if outcome.is_ok() {
            assert!(
                !panicked.load(Ordering::SeqCst) && panics > 20,
                "{n}: {panics}"
            );
            assert!(cleared <= 2, "{cleared}");
            break;
        }
        panics += 1;
        device.take_log();
        says_panicked(create(&fs, fs.root(), "more"));
        says_panicked(fs.unlink(fs.root(), b"kept"));
        says_panicked(fs.set_label(b"label"));
        says_panicked(fs.trim(0..u64::MAX, 0));
        says_panicked(fs.sync(fs.root()));
        says_panicked(fs.sync_all());
        fs.device_failed(&Error::write(0, 512, std::io::Error::other("later")));
        says_panicked(fs.finish());
        assert_eq!(device.take_changes(), [], "{n}");
        let _names_before_or_after = list(&fs, fs.root());
        let left = device.to_vec();
        // The last request is the flush after the write that clears `VolumeDirty`.
        if left[106] & 2 == 0 {
            assert_sound(&left)
        } else {
            drop(open(&left))
        }
        cleared += u32::from(left[106] & 2 == 0);
    }
}
