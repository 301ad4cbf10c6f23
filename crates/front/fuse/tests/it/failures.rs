//! Failing sources, panicking drivers and damaged images affect only the request in question.

use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use forerun_engine::EngineOptions;
use forerun_fuse::{Mount, MountOptions, mount_reader};
use forerun_io::ReadAt;
use forerun_testkit::{FaultSource, MemFsBuilder, MemImage, Piece};
use forerun_vfs::FileSystem;
use rustix::io::Errno;

use crate::common::{Place, can_mount, reader};

const MIB: usize = 1 << 20;

fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

fn serve(fs: Arc<dyn FileSystem>, source: Arc<dyn ReadAt>, place: &Place, options: &str) -> Mount {
    let mut engine = EngineOptions::default();
    let options = MountOptions::parse(options).unwrap();
    engine.large_blocks = options.large_blocks;
    mount_reader(reader(fs, source, &engine), &place.mnt(), &options).unwrap()
}

fn big_file() -> (MemImage, Range<u64>, Vec<u8>) {
    let bytes = forerun_testkit::generate::bytes(7, 8 * MIB);
    let mut builder = MemFsBuilder::new();
    builder.align(4096);
    let node = builder.file("big", [Piece::Stored(bytes.clone())]);
    let image = builder.build();
    let mut start = 0;
    image
        .fs
        .map(node, 0..1, &mut |extent| {
            if let forerun_vfs::Place::Stored { offset, .. } = extent.place {
                start = offset;
            }
            ControlFlow::Break(())
        })
        .unwrap();
    (image, start..start + 8 * 1024 * 1024, bytes)
}

#[test]
fn a_bad_block_is_eio_for_its_range_only() {
    if !can_mount() {
        return;
    }
    for options in ["", "nolargeblocks"] {
        let (image, place_in_image, bytes) = big_file();
        let bad = 4 * 1024 * 1024 + 512;
        let at = place_in_image.start + bad;
        let source = FaultSource::bad_range(image.source.clone(), at..at + 1);
        let place = Place::new("badblock");
        let mount = serve(image.driver(), Arc::new(source), &place, options);
        let file = File::open(place.mnt().join("big")).unwrap();
        let mut page = vec![0; 4096];
        let (mut failed, mut offset) = (Vec::new(), 0);
        // Reads forward and continues after errors, like ddrescue.
        while offset < bytes.len() {
            match file.read_exact_at(&mut page, u64::try_from(offset).unwrap()) {
                Ok(()) => assert!(page == bytes[offset..offset + 4096], "{offset} {options}"),
                Err(error) => {
                    assert_eq!(errno(&error), Some(Errno::IO));
                    failed.push(offset);
                }
            }
            offset += 4096;
        }
        assert_eq!(failed, [4 * MIB], "{options}");
        let whole = fs::read(place.mnt().join("big")).unwrap_err();
        assert_eq!(errno(&whole), Some(Errno::IO));
        drop(mount);
    }
}

/// Creates an image in which each map of one file calls `spring`, which panics or waits.
fn trapped(spring: impl Fn() + Send + Sync + 'static) -> (Arc<dyn FileSystem>, Arc<dyn ReadAt>) {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("trap", [Piece::Stored(vec![1; 300 * 1024])]);
    builder.file("fine", [Piece::Stored(b"fine".to_vec())]);
    builder.on_map(move |mapped, range| {
        if mapped == node {
            spring();
        }
        vec![range]
    });
    let image = builder.build();
    (image.driver(), Arc::new(image.source))
}

#[test]
fn a_panic_is_eio_and_the_mount_lives_on() {
    if !can_mount() {
        return;
    }
    let (fs, source) = trapped(|| panic!("on purpose"));
    let place = Place::new("panic");
    let _mount = serve(fs, source, &place, "threads=4");
    for _ in 0..20 {
        let error = fs::read(place.mnt().join("trap")).unwrap_err();
        assert_eq!(errno(&error), Some(Errno::IO));
    }
    assert_eq!(fs::read(place.mnt().join("fine")).unwrap(), b"fine");
}

#[test]
fn slow_reads_do_not_hold_up_others() {
    if !can_mount() {
        return;
    }
    let gate = forerun_testkit::Gate::default();
    let waiting = Arc::new(std::sync::Barrier::new(2));
    let (inner_gate, inner_waiting) = (
        Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new())),
        Arc::clone(&waiting),
    );
    drop(gate);
    let opened = Arc::clone(&inner_gate);
    let first = std::sync::atomic::AtomicBool::new(true);
    let (fs, source) = trapped(move || {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            inner_waiting.wait();
        }
        let (open, changed) = &*inner_gate;
        let guard = open.lock().unwrap();
        drop(changed.wait_while(guard, |open| !*open).unwrap());
    });
    let place = Place::new("slow");
    let _mount = serve(fs, source, &place, "threads=4");
    let path = place.mnt().join("trap");
    // More readers than request threads.
    let readers: Vec<_> = (0..24)
        .map(|n| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut page = [0; 4096];
                let file = File::open(path).unwrap();
                file.read_exact_at(&mut page, n * 12288).unwrap();
                assert_eq!(page, [1; 4096]);
            })
        })
        .collect();
    waiting.wait();
    assert_eq!(fs::read(place.mnt().join("fine")).unwrap(), b"fine");
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 2);
    assert!(readers.iter().any(|reader| !reader.is_finished()));
    let (open, changed) = &*opened;
    *open.lock().unwrap() = true;
    changed.notify_all();
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn a_damaged_node_does_not_spoil_its_directory() {
    if !can_mount() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    let node = builder.file("broken", [Piece::Stored(vec![1])]);
    let dir = builder.dir("brokendir");
    builder.file("fine", [Piece::Stored(b"fine".to_vec())]);
    builder.damage(node).damage(dir);
    let image = builder.build();
    let place = Place::new("damaged");
    let _mount = serve(image.driver(), Arc::new(image.source), &place, "");
    let mut names: Vec<_> = fs::read_dir(place.mnt())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["broken", "brokendir", "fine"]);
    for name in ["broken", "brokendir"] {
        let error = fs::metadata(place.mnt().join(name)).unwrap_err();
        assert_eq!(errno(&error), Some(Errno::IO), "{name}");
    }
    let error = fs::read_dir(place.mnt().join("brokendir")).err();
    assert!(error.is_none_or(|error| errno(&error) == Some(Errno::IO)));
    assert_eq!(fs::read(place.mnt().join("fine")).unwrap(), b"fine");
}
