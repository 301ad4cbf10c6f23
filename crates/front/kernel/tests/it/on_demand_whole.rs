//! EROFS images from a server, mounted by the kernel when all of them is in the cache already.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use forerun::mounts;
use forerun_kernel::{Ended, Options, Way, mount_remote};
use rustix::fs::{major, minor};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::common::{can_mount, end};
use crate::on_demand_support::{Served, alter, big, forget, guard_args};

#[test]
fn what_was_altered_in_a_whole_cache_is_never_served() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-whole") else {
        return;
    };
    let place = &served.place;
    place.erofs("image", |_| ());
    let (image, remote) = served.open("image", "whole");
    remote.prefetch_all();
    assert!(remote.wait_complete(Duration::from_secs(60)));
    drop((image, remote));

    let (image, remote) = served.open("image", "whole");
    assert!(remote.blob().is_complete());
    alter(remote.blob().data_file(), &big()[7 << 20..][..64]);
    let options = Options::default();
    let mut mounted = mount_remote(&image, &remote, &place.mnt(), &options, guard_args()).unwrap();
    assert_eq!(mounted.mounted().way, Way::OnDemand);
    // The kernel reads metadata without asking.
    for range in image.reader().fs().metadata_layout().ranges() {
        let chunks = remote.blob().geometry().chunks_of(range);
        assert!(remote.blob().are_checked(chunks), "{range:?}");
    }
    let file = place.mnt().join("big");
    assert!(fs::read(&file).unwrap() == big());
    assert_eq!(remote.status().altered_chunks, 1);

    // The filler has verified all, and the mount reads the file past the page cache.
    assert_eq!(mounted.wait(), Ended::Complete);
    let asked = mounted.asked();
    let dev = fs::metadata(place.mnt()).unwrap().dev();
    let device = (major(dev), minor(dev));
    let all = mounts().unwrap();
    let entry = all.iter().find(|entry| entry.device == device).unwrap();
    assert!(entry.has_option("directio"), "{}", entry.options);
    forget(&place.mnt(), &remote);
    assert!(fs::read(&file).unwrap() == big());
    assert_eq!(mounted.asked(), asked);
    end(&place.mnt());
    drop((mounted, image, remote));

    // What one process has verified the next one verifies again, unless it is told to trust the cache.
    let (image, remote) = served.open_trusting("image", "whole");
    let mounted = mount_remote(&image, &remote, &place.mnt(), &options, guard_args()).unwrap();
    assert_eq!(mounted.mounted().way, Way::Cache);
    assert!(fs::read(&file).unwrap() == big());
    end(&place.mnt());
    drop((mounted, image, remote));
    place.nothing_left();
}

/// Bytes of the file of the test below: several of the windows that are verified ahead of a reader.
const LONG: usize = 96 << 20;

#[test]
fn what_a_reader_has_passed_is_in_the_page_cache_once() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-passed") else {
        return;
    };
    let place = &served.place;
    fs::write(place.path("tree/long"), long()).unwrap();
    place.erofs("image", |_| ());
    let (image, remote) = served.open("image", "passed");
    remote.prefetch_all();
    assert!(remote.wait_complete(Duration::from_secs(60)));
    drop((image, remote));

    let (image, remote) = served.open("image", "passed");
    let options = Options::default();
    let mounted = mount_remote(&image, &remote, &place.mnt(), &options, guard_args()).unwrap();
    forget(&place.mnt(), &remote);
    assert!(fs::read(place.mnt().join("long")).unwrap() == long());
    let (pages, all) = in_page_cache(remote.blob().data_file());
    assert!(pages < all / 2, "{pages} of {all} are kept twice");
    end(&place.mnt());
    drop((mounted, image, remote));
    place.nothing_left();
}

/// Returns bytes without a run of zeros.
fn long() -> Vec<u8> {
    let mut bytes = big();
    bytes.resize(LONG, 0);
    for at in (big().len()..LONG).step_by(64) {
        bytes[at..at + 8].copy_from_slice(&(at | 1).to_le_bytes());
    }
    bytes
}

/// Returns how many of the probed pages of a file are in the page cache, and how many were probed.
fn in_page_cache(file: &fs::File) -> (usize, usize) {
    let len = file.metadata().unwrap().len();
    let probes = (0..len).step_by(1 << 20);
    let all = probes.clone().count();
    let cached = probes.filter(|&at| {
        let mut byte = [0];
        let mut slices = [std::io::IoSliceMut::new(&mut byte)];
        preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT) == Ok(1)
    });
    (cached.count(), all)
}
