//! EROFS images at a server, mounted by the kernel while they are being fetched.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::{Duration, Instant};

use forerun::remote::{self, RemoteOptions};
use forerun::{Compression, FillEncoding, Image, OpenOptions};
use forerun_kernel::{Ended, Error, GuardArgs, Options, Way, mount_remote, run_guard, umount};
use forerun_testkit::require;
use forerun_testkit_servers::fault_proxy::Network;

use crate::common::{Seen, can_mount, end, open, run};
use crate::on_demand_support::{
    self, Cgroup, Served, alter, big, forget, guard_args, wait_for_file,
};

/// Runs the guard of the tests below in its process; it is not a test itself.
#[test]
fn guard_process() {
    let _ = run_guard();
}

fn lz4(options: &mut forerun::ErofsOptions) {
    options.compression = Some(Compression::new(FillEncoding::Lz4));
}

/// Mounts, compares everything, completes it, and compares again without a filler.
fn compare(served: &Served, name: &str) {
    let place = &served.place;
    let ours = Seen::of_image(&open(&place.path(name)));
    let (image, remote) = served.open(name, name);
    let mounted = mount_remote(
        &image,
        &remote,
        &place.mnt(),
        &Options::default(),
        guard_args(),
    );
    let mut mounted = mounted.unwrap();
    assert_eq!(mounted.mounted().way, Way::OnDemand);
    Seen::of_mount(&place.mnt()).assert_same(&ours);
    let asked = mounted.asked();
    assert!(asked.events > 0 && asked.failed == 0, "{name}: {asked:?}");
    assert!(asked.guard.is_some());
    let monitor = mounted.monitor().unwrap();
    assert!(monitor.asked().unwrap().events >= asked.events);
    let dev = fs::metadata(place.mnt()).unwrap().dev();
    let device = (rustix::fs::major(dev), rustix::fs::minor(dev));
    assert_eq!(monitor.device(), device);
    remote.prefetch_all();
    assert!(remote.wait_complete(Duration::from_secs(60)));
    assert_eq!(mounted.wait(), Ended::Complete);
    let asked = mounted.asked();
    forget(&place.mnt(), &remote);
    Seen::of_mount(&place.mnt()).assert_same(&ours);
    assert_eq!(mounted.asked().events, asked.events, "{name}");
    let status = remote.status();
    assert_eq!(
        (status.refetched_bytes, status.wrong_bytes),
        (0, 0),
        "{name}"
    );
    drop((mounted, image, remote));
    assert_eq!(monitor.asked(), None);
    // Only the kernel serves it now.
    Seen::of_mount(&place.mnt()).assert_same(&ours);
    end(&place.mnt());
    place.nothing_left();
}

#[test]
fn all_kinds_of_images_show_the_same() {
    if !can_mount("erofs") || require::program("mkfs.erofs").is_none() {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand") else {
        return;
    };
    let place = &served.place;
    place.erofs("plain", |_| ());
    compare(&served, "plain");
    place.erofs("lz4", lz4);
    compare(&served, "lz4");
    // Debian's mkfs.erofs cannot take names this long; it interleaves metadata with the data.
    fs::remove_dir(place.path("tree").join("d".repeat(255))).unwrap();
    fs::remove_file(place.path("tree").join("n".repeat(255))).unwrap();
    let tree = place.path("tree");
    for (name, more) in [("theirs", &["-d0"][..]), ("theirs-lz4", &["-d0", "-zlz4"])] {
        let path = place.path(name);
        let to = [path.to_str().unwrap(), tree.to_str().unwrap()];
        run("mkfs.erofs", &[more, &to].concat());
        compare(&served, name);
    }
}

#[test]
fn only_what_is_read_is_fetched_and_readers_share_it() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-readers") else {
        return;
    };
    let place = &served.place;
    fs::copy("/bin/sh", place.path("tree/sh")).unwrap();
    place.erofs("image", |_| ());
    let second = place.path("mnt2");
    fs::create_dir(&second).unwrap();
    let (image, remote) = served.open("image", "shared");
    let (image2, remote2) = served.open("image", "shared");
    let options = Options::default();
    let one = mount_remote(&image, &remote, &place.mnt(), &options, guard_args()).unwrap();
    let two = mount_remote(&image2, &remote2, &second, &options, guard_args()).unwrap();
    let len = fs::metadata(place.path("image")).unwrap().len();
    let before = served.proxy.log().sent();
    assert!(before < len / 2, "{before} of {len} to mount");
    let file = File::open(place.mnt().join("big")).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 5 << 20).unwrap();
    assert_eq!(block[..], big()[5 << 20..][..4096]);
    drop(file);
    // Several readers of both mounts, and a program that is mapped while they read.
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let dir = if reader % 2 == 0 {
                place.mnt()
            } else {
                second.clone()
            };
            scope.spawn(move || {
                let file = File::open(dir.join("big")).unwrap();
                let expected = big();
                let mut block = vec![0; 40_000];
                for step in 0..40_usize {
                    let at =
                        (step * 7919 + reader * 104_729) * 1013 % (expected.len() - block.len());
                    file.read_exact_at(&mut block, at as u64).unwrap();
                    assert!(
                        block == expected[at..][..block.len()],
                        "wrong bytes at {at}"
                    );
                }
            });
        }
        for dir in [place.mnt(), second.clone()] {
            scope.spawn(move || {
                let said = Command::new(dir.join("sh"))
                    .args(["-c", "echo mapped"])
                    .output();
                assert_eq!(said.unwrap().stdout, b"mapped\n");
            });
        }
    });
    assert_eq!(
        served.proxy.log().all_sent_twice(),
        0,
        "each byte comes once"
    );
    for (mut mounted, dir) in [(one, place.mnt()), (two, second)] {
        assert_eq!(mounted.asked().failed, 0);
        end(&dir);
        assert_eq!(mounted.wait(), Ended::Unmounted);
    }
    place.nothing_left();
}

#[test]
fn what_an_earlier_process_has_stored_is_verified_ahead_of_the_reader() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-ahead") else {
        return;
    };
    let place = &served.place;
    // Not read, so that the kernel has to ask all the time.
    fs::write(place.path("tree/rest"), vec![7; 1 << 20]).unwrap();
    place.erofs("image", |_| ());
    let options = Options::default();
    let mount = || {
        let (image, remote) = served.open("image", "ahead");
        let mounted = mount_remote(&image, &remote, &place.mnt(), &options, guard_args());
        (mounted.unwrap(), image, remote)
    };
    let (mut mounted, image, remote) = mount();
    assert_eq!(fs::read(place.mnt().join("big")).unwrap(), big());
    end(&place.mnt());
    assert_eq!(mounted.wait(), Ended::Unmounted);
    drop((mounted, image, remote));
    let sent = served.proxy.log().sent();

    let (mut mounted, image, remote) = mount();
    let blob = remote.blob();
    assert!(!blob.is_complete());
    alter(blob.data_file(), &big()[7 << 20..][..64]);
    let file = File::open(place.mnt().join("big")).unwrap();
    let expected = big();
    let compare = |part: std::ops::Range<usize>| {
        let mut block = [0; 4096];
        for at in part.step_by(block.len()) {
            file.read_exact_at(&mut block, at as u64).unwrap();
            assert!(block[..] == expected[at..][..block.len()], "{at}");
        }
    };
    compare(0..512 << 10);
    let size = u64::from(blob.geometry().chunk_size());
    let verified = || {
        let chunks = 0..blob.geometry().chunks();
        chunks
            .filter(|chunk| blob.are_checked(*chunk..*chunk + 1))
            .count() as u64
            * size
    };
    let patience = Instant::now() + Duration::from_secs(20);
    // The second window reaches to the end.
    while verified() < expected.len() as u64 - size {
        assert!(Instant::now() < patience, "{} bytes verified", verified());
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = mounted.asked();
    compare(512 << 10..expected.len());
    let after = mounted.asked();
    assert!(after.events > before.events, "{after:?}");
    assert_eq!(after.unverified, before.unverified, "a reader waited");
    // But for what was altered.
    assert_eq!((after.fetched, after.failed), (1, 0), "{after:?}");
    assert_eq!(remote.status().altered_chunks, 1);
    let again = served.proxy.log().sent() - sent;
    assert!(
        (size..3 * size).contains(&again),
        "{again} bytes fetched again"
    );
    drop(file);
    end(&place.mnt());
    assert_eq!(mounted.wait(), Ended::Unmounted);
    drop((mounted, image, remote));
    place.nothing_left();
}

#[test]
fn without_the_network_reads_fail_and_recover() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-network") else {
        return;
    };
    let place = &served.place;
    place.erofs("image", |_| ());
    let (image, remote) = served.open("image", "network");
    let options = Options::default();
    let mut mounted = mount_remote(&image, &remote, &place.mnt(), &options, guard_args()).unwrap();
    let file = File::open(place.mnt().join("big")).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).unwrap();
    served.proxy.set_network(Network::Refused);
    let far = 7 << 20;
    let error = file.read_exact_at(&mut block, far).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    assert!(mounted.asked().failed > 0);
    file.read_exact_at(&mut block, 0).unwrap();
    assert_eq!(block[..], big()[..4096]);
    served.proxy.set_network(Network::Up);
    // The client may rest between attempts for some time; each read waits up to its limit.
    let patience = Instant::now() + Duration::from_secs(60);
    while file.read_exact_at(&mut block, far).is_err() {
        assert!(Instant::now() < patience);
    }
    assert_eq!(block[..], big()[7 << 20..][..4096]);
    drop(file);
    // Detached lazily it is served until its last user is gone.
    let root = File::open(place.mnt()).unwrap();
    let file = File::open(place.mnt().join("big")).unwrap();
    umount(&place.mnt(), true).unwrap();
    file.read_exact_at(&mut block, 6 << 20).unwrap();
    assert_eq!(block[..], big()[6 << 20..][..4096]);
    drop((file, root));
    assert_eq!(mounted.wait(), Ended::Unmounted);
    place.nothing_left();
}

#[test]
fn what_is_refused_leaves_nothing() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-refused") else {
        return;
    };
    let place = &served.place;
    let try_it = |image: &Image, remote: &_| {
        mount_remote(
            image,
            remote,
            &place.mnt(),
            &Options::default(),
            guard_args(),
        )
    };
    place.squashfs("squashfs");
    let (image, remote) = served.open("squashfs", "refused");
    let error = try_it(&image, &remote).unwrap_err();
    assert!(matches!(error, Error::NotOnDemand { .. }), "{error}");
    place.erofs("image", |_| ());
    let (image, remote) = served.open("image", "refused");
    let no_guard = GuardArgs {
        args: vec!["no_such_test_at_all".into(), "--exact".into()],
        filler: None,
    };
    let options = Options::default();
    let error = mount_remote(&image, &remote, &place.mnt(), &options, no_guard).unwrap_err();
    assert!(matches!(error, Error::OnDemand { .. }), "{error}");
    place.nothing_left();
    // What is in the cache already needs no process.
    remote.prefetch_all();
    assert!(remote.wait_complete(Duration::from_secs(60)));
    let mut mounted = try_it(&image, &remote).unwrap();
    assert_eq!(mounted.mounted().way, Way::Cache);
    assert_eq!(
        (mounted.wait(), mounted.asked().guard),
        (Ended::Complete, None)
    );
    assert!(mounted.monitor().is_none());
    assert_eq!(fs::read(place.mnt().join("big")).unwrap(), big());
    let shown = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let here = place.mnt().display().to_string();
    let line = shown.lines().find(|line| line.contains(&here)).unwrap();
    assert!(line.contains("!image"), "{line}");
    end(&place.mnt());
    place.nothing_left();
}

#[test]
fn a_cache_without_pre_content_events_is_refused() {
    if !can_mount("erofs") || !require::kernel_filesystem("tmpfs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-tmpfs") else {
        return;
    };
    let place = &served.place;
    place.erofs("image", |_| ());
    let memory = place.path("memory");
    fs::create_dir(&memory).unwrap();
    run("mount", &["-t", "tmpfs", "tmpfs", memory.to_str().unwrap()]);
    let options = RemoteOptions {
        cache_dir: Some(memory.join("cache")),
        ..RemoteOptions::default()
    };
    let remote = remote::open(&served.reference("image"), &options);
    let outcome = remote.map(|remote| {
        let image = Image::from_source(remote.clone(), &OpenOptions::default()).unwrap();
        let options = Options::default();
        mount_remote(&image, &remote, &place.mnt(), &options, guard_args()).map(drop)
    });
    umount(&memory, true).unwrap();
    let error = outcome.unwrap().unwrap_err();
    assert!(matches!(error, Error::NoPreContent), "{error}");
    place.nothing_left();
}

/// Fills the mount of the tests below in a process of its own, which dies; it is not a test itself.
#[test]
fn filler_process() {
    on_demand_support::filler_process();
}

#[test]
fn the_death_of_the_filler_shows_no_zeros() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-death") else {
        return;
    };
    served.place.erofs("image", |_| ());
    for round in 0..6_usize {
        let mut filler = served.start_filler("image", &format!("death{round}"));
        if round == 5 {
            // Without its first guard it has another one.
            let first = filler.guard;
            Command::new("kill")
                .args(["-9", &first.to_string()])
                .status()
                .unwrap();
            filler.await_other_guard();
            assert_ne!(filler.guard, first);
        }
        let (right, failed) = filler.read_and_kill(&served.place.mnt(), 3 + round * 23);
        assert!(
            right > 0 && failed > 0,
            "{right} reads right, {failed} failed"
        );
        let guard = filler.guard;
        end(&served.place.mnt());
        wait_for_file(&format!("/proc/{guard}/exe"), false);
        served.place.nothing_left();
    }
}

/// Kills the filler through its cgroup, as a service manager ends processes that do not stop.
#[test]
fn the_end_of_the_cgroup_of_the_filler_shows_no_zeros() {
    if !can_mount("erofs") {
        return;
    }
    let Some(cgroup) = Cgroup::new() else { return };
    let Some(served) = Served::new("kernel-on-demand-cgroup") else {
        return;
    };
    served.place.erofs("image", |_| ());
    let procs = cgroup.path.join("cgroup.procs");
    let mut filler = served.start_filler_in("image", "cgroup", Some(cgroup));
    let killed = fs::read_to_string(procs).unwrap();
    let guard = filler.guard;
    assert!(killed.lines().all(|line| line != guard.to_string()));
    let (right, failed) = filler.read_and_kill(&served.place.mnt(), 7);
    assert!(right > 0 && failed > 0, "{right} right, {failed} failed");
    end(&served.place.mnt());
    wait_for_file(&format!("/proc/{guard}/exe"), false);
    served.place.nothing_left();
}

/// Checks that reads that wait when a filler dies are answered by the next one.
#[test]
fn a_filler_that_dies_is_replaced() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-replaced") else {
        return;
    };
    served.place.erofs("image", |_| ());
    let mut filler = served.start_filler_with("image", "replaced", None, Some(3));
    let guard = filler.guard;
    let (right, failed) = filler.read_and_kill_three(&served.place.mnt());
    // A filler that dies in the few microseconds between taking a read and recording it leaves one
    // that the next filler does not know of: it fails.
    assert!(right > 0 && failed <= 1, "{right} right, {failed} failed");
    assert!(
        fs::metadata(format!("/proc/{guard}")).is_ok(),
        "the guard is the same"
    );
    end(&served.place.mnt());
    wait_for_file(&format!("/proc/{guard}/exe"), false);
    served.place.nothing_left();
}

/// Kills three fillers of a guard that replaces two: reads of what is not here then fail, and return no
/// zeros.
#[test]
fn fillers_that_die_too_often_are_not_replaced() {
    if !can_mount("erofs") {
        return;
    }
    let Some(served) = Served::new("kernel-on-demand-too-often") else {
        return;
    };
    served.place.erofs("image", |_| ());
    let mut filler = served.start_filler_with("image", "often", None, Some(2));
    let (right, failed) = filler.read_and_kill_three(&served.place.mnt());
    assert!(right > 0 && failed > 0, "{right} right, {failed} failed");
    let guard = filler.guard;
    end(&served.place.mnt());
    wait_for_file(&format!("/proc/{guard}/exe"), false);
    served.place.nothing_left();
}
