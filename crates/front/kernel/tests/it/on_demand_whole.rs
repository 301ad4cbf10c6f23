//! EROFS images from a server, mounted by the kernel when all of them is in the cache already.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use forerun::mounts;
use forerun_kernel::{Ended, Options, Way, mount_remote};
use rustix::fs::{major, minor};

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
