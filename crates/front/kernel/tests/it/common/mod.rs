//! Mountpoints, images to mount, and checks for leftovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun::build::{ComposefsOptions, ErofsOptions, ScanOptions, SquashfsOptions, scan};
use forerun::{Image, Observer, Writer};
use forerun_kernel::{Error, Mounted, Options, umount};
use forerun_testkit::everything::{Xattrs, everything, image_xattrs, xattrs_of};
use forerun_testkit::{Keeps, TempDir, TreeModel, require, temp_dir};

/// Returns whether root can mount this filesystem type here; skips the test otherwise.
pub fn can_mount(fstype: &str) -> bool {
    let programs = ["losetup", "umount"].map(require::program);
    require::root() && require::kernel_filesystem(fstype) && !programs.contains(&None)
}

/// A temporary directory with `tree`, which has every kind of file, and the empty mountpoint `mnt`.
/// Dropping it detaches what is mounted there.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let place = Self::empty(name);
        fs::create_dir(place.path("tree")).unwrap();
        everything(&place.path("tree"));
        place
    }

    pub fn empty(name: &str) -> Self {
        let dir = temp_dir(name);
        fs::create_dir(dir.path().join("mnt")).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn write(&self, name: &str, writer: &Writer) -> PathBuf {
        let tree = scan(&self.path("tree"), &ScanOptions::default()).unwrap();
        let path = self.path(name);
        let mut out = fs::File::create(&path).unwrap();
        let observer = Arc::new(Observer::default());
        writer.write(&tree, &mut out, &observer).unwrap();
        path
    }

    pub fn erofs(&self, name: &str, change: impl FnOnce(&mut ErofsOptions)) -> PathBuf {
        let mut options = ErofsOptions::default();
        change(&mut options);
        self.write(name, &Writer::Erofs(options))
    }

    pub fn squashfs(&self, name: &str) -> PathBuf {
        self.write(name, &Writer::Squashfs(SquashfsOptions::default()))
    }

    pub fn composefs(&self, name: &str, store: &str) -> PathBuf {
        let mut options = ComposefsOptions::default();
        options.objects = Some(self.path(store));
        self.write(name, &Writer::Composefs(options))
    }

    pub fn mounted<R>(
        &self,
        image: &Image,
        path: &Path,
        options: &Options,
        look: impl FnOnce(&Mounted) -> R,
    ) -> Result<R, Error> {
        let mounted = forerun_kernel::mount(image, path, &self.mnt(), options)?;
        let seen = look(&mounted);
        end(&self.mnt());
        self.nothing_left();
        Ok(seen)
    }

    pub fn nothing_left(&self) {
        let here = self.path("").display().to_string();
        let here = here.trim_end_matches('/');
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(here)).collect();
        assert!(left.is_empty(), "{left:?}");
        // The kernel releases loop devices asynchronously.
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let devices = run(
                "losetup",
                &["--list", "--noheadings", "--output", "BACK-FILE"],
            );
            if !devices.contains(here) {
                return;
            }
            assert!(Instant::now() < patience, "{devices}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Several mounts may be stacked.
        while std::thread::panicking() && umount(&self.mnt(), true).is_ok() {}
    }
}

pub struct Seen {
    pub model: TreeModel,
    pub xattrs: Xattrs,
}

impl Seen {
    pub fn of_mount(root: &Path) -> Self {
        let model = TreeModel::of_host(root).unwrap();
        let xattrs = xattrs_of(root, &model);
        Self { model, xattrs }
    }

    pub fn of_image(image: &Image) -> Self {
        let reader = image.reader();
        let read = |node, offset, out: &mut [u8]| reader.read_into(node, offset, out);
        let model = TreeModel::of_reader(reader.fs(), read).unwrap();
        let xattrs = image_xattrs(reader.fs());
        Self { model, xattrs }
    }

    #[track_caller]
    pub fn assert_same(&self, other: &Self) {
        self.model.assert_same(&other.model, &Keeps::EVERYTHING);
        assert_eq!(self.xattrs, other.xattrs);
    }
}

pub fn open(path: &Path) -> Image {
    Image::open(path).unwrap()
}

pub fn run(program: &str, args: &[&str]) -> String {
    forerun_testkit::everything::run(Command::new(program).args(args))
}

/// Unmounts, retrying while busy: processes forked by other tests hold copies of our descriptors
/// until they exec.
pub fn end(mnt: &Path) {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match umount(mnt, false) {
            Err(Error::Busy { .. }) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            ended => return ended.unwrap(),
        }
    }
}
