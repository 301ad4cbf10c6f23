//! Many readers wait for an unresponsive source: all other requests are answered, killed readers
//! exit, and the mount ends when told to.

use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use forerun_fuse::{Mount, MountOptions, Unmounted, mount_reader};
use forerun_io::MemorySource;
use forerun_testkit::{DirectReaders, MemFsBuilder, MemImage, Piece, StalledSource, eventually};
use forerun_vfs::FileSystem;
use rustix::fs::Advice;

use crate::common::{Place, can_mount, reader};

/// Each reader reads a different page.
const PAGE: usize = 4096;
const PAGES: usize = 512;
/// Number of files that no program has accessed yet.
const FILES: usize = 200;
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A mount whose source does not return the data of the file `big`.
struct Scene {
    mount: Option<Mount>,
    source: StalledSource<MemorySource>,
    place: Place,
}

fn image() -> (MemImage, Range<u64>) {
    let mut builder = MemFsBuilder::new();
    builder.align(PAGE);
    let big = builder.file("big", [Piece::Stored(vec![7; PAGES * PAGE])]);
    for n in 0..FILES {
        builder.file(&format!("file{n}"), [Piece::Stored(b"small".to_vec())]);
    }
    let image = builder.build();
    let mut start = 0;
    let mut found = |extent: forerun_vfs::Extent| {
        if let forerun_vfs::Place::Stored { offset, .. } = extent.place {
            start = offset;
        }
        ControlFlow::Break(())
    };
    image.fs.map(big, 0..1, &mut found).unwrap();
    (image, start..start + (PAGES * PAGE) as u64)
}

impl Scene {
    fn new(
        name: &str,
        stalled: fn(MemorySource, Range<u64>) -> StalledSource<MemorySource>,
    ) -> Self {
        let (image, big) = image();
        let source = stalled(image.source.clone(), big);
        let place = Place::new(name);
        let options = MountOptions::parse("threads=4").unwrap();
        let engine = options.open_options().engine;
        let reader = reader(image.driver(), Arc::new(source.clone()), &engine);
        let mount = mount_reader(reader, &place.mnt(), &options).unwrap();
        Self {
            mount: Some(mount),
            source,
            place,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.mnt().join(name)
    }

    fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    fn readers(&self, count: usize) -> DirectReaders {
        DirectReaders::waiting(&self.path("big"), PAGE, count)
    }

    /// Starts readers, and waits until the requests of all are waiting for the source. A sleeping
    /// reader is not proof: the mount may not have taken its request yet.
    fn waiting(&self, count: usize) -> DirectReaders {
        let readers = self.readers(count);
        eventually("all requests wait", || self.mount().waiting().now == count);
        readers
    }

    #[track_caller]
    fn wait_for_end(&mut self) {
        let mut mount = self.mount.take().unwrap();
        within(STEP_TIMEOUT, move || mount.wait().unwrap());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.source.release();
    }
}

/// Runs `work`, and panics if it takes longer than `patience`.
#[track_caller]
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, finished) = channel();
    thread::spawn(move || done.send(work()));
    match finished.recv_timeout(patience) {
        Ok(result) => result,
        Err(error) => panic!("after {patience:?}: {error}"),
    }
}

/// Accesses files that the kernel does not know yet, and lists directories. The readers wait until
/// the scene ends, so this would hang if it waited for them.
fn look_around(mnt: &Path) {
    for n in 0..FILES {
        let path = mnt.join(format!("file{n}"));
        assert_eq!(fs::metadata(&path).unwrap().len(), 5);
    }
    assert_eq!(fs::read_dir(mnt).unwrap().count(), FILES + 1);
    assert!(rustix::fs::statvfs(mnt).unwrap().f_blocks > 0);
}

#[test]
fn metadata_is_answered_while_readers_wait_for_a_server() {
    let _no_storm = crate::CPUS.read();
    if !can_mount() {
        return;
    }
    for readers in [140, 500] {
        let scene = Scene::new("lanes", StalledSource::server);
        let _readers = scene.waiting(readers);
        let mnt = scene.place.mnt();
        within(STEP_TIMEOUT, move || look_around(&mnt));
        let waiting = scene.mount().waiting();
        assert_eq!(waiting.now, readers, "{waiting:?}");
        // Requests that need no server are answered inline, whatever else waits.
        assert_eq!((waiting.metadata, waiting.data), (0, readers as u64));
        // Data in memory does not wait for data that is not.
        let file = scene.path("file3");
        assert_eq!(
            within(STEP_TIMEOUT, move || fs::read(file)).unwrap(),
            b"small"
        );
    }
}

#[test]
fn metadata_is_answered_while_readers_wait_for_a_disk() {
    let _no_storm = crate::CPUS.read();
    if !can_mount() {
        return;
    }
    for readers in [140, 500] {
        let scene = Scene::new("lanes-disk", StalledSource::disk);
        let _readers = scene.readers(readers);
        let mnt = scene.place.mnt();
        within(STEP_TIMEOUT, move || look_around(&mnt));
        // Only the end of the process ends reads that hang in the source.
        assert!(scene.mount().ending().hangs());
    }
}

#[test]
fn killed_readers_go_and_free_their_threads() {
    let _no_storm = crate::CPUS.read();
    if !can_mount() {
        return;
    }
    let scene = Scene::new("killed", StalledSource::server);
    let mut readers = scene.waiting(500);
    readers.kill();
    assert_eq!(readers.wait(), 0);
    let waiting = scene.mount().waiting();
    assert!(
        !scene.mount().ending().hangs(),
        "no taker waits for a server"
    );
    assert_eq!((waiting.now, waiting.refused), (0, 500), "{waiting:?}");
    // The workers are free for others: use more readers than there may be workers.
    let readers = scene.waiting(140);
    let waiting = scene.mount().waiting();
    assert!(waiting.threads <= 64, "{waiting:?}");
    scene.source.release();
    assert_eq!(readers.wait(), 140);
}

#[test]
fn a_mount_that_is_told_to_end_fails_the_reads_that_wait() {
    let _no_storm = crate::CPUS.read();
    if !can_mount() {
        return;
    }
    let mut scene = Scene::new("ending", StalledSource::server);
    let readers = scene.waiting(140);
    assert_eq!(scene.mount().unmount().unwrap(), Unmounted::StillInUse);
    scene.mount().ending().begin();
    assert_eq!(readers.wait(), 0);
    scene.wait_for_end();
}

#[test]
fn threads_that_hang_do_not_keep_a_mount() {
    let _no_storm = crate::CPUS.read();
    if !can_mount() {
        return;
    }
    let mut scene = Scene::new("hung", StalledSource::disk);
    // No file stays open, but requests remain.
    let file = File::open(scene.path("big")).unwrap();
    for page in 0..16 {
        let at = page * 32 * PAGE as u64;
        rustix::fs::fadvise(&file, at, None, Advice::WillNeed).unwrap();
    }
    drop(file);
    eventually("unmounted", || {
        scene.mount().unmount().unwrap() == Unmounted::Done
    });
    scene.wait_for_end();
}
