//! exFAT volumes made by mkfs.exfat and checked by fsck.exfat.

use std::path::PathBuf;
use std::process::Command;

use forerun::unstable::VolumeMut;
use forerun_fuse::{Mount, MountOptions, mount_volume};
use forerun_testkit::eventually;
use forerun_testkit::exfat_tools::{self, assert_clean};

use super::{Place, can_mount, run};

pub struct Volume {
    pub place: Place,
}

impl Volume {
    /// Creates a volume of `mib` MiB with these options of mkfs.exfat.
    pub fn new(name: &str, mib: u64, options: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let place = Place::new(name);
        let image = place.dir().join("image");
        exfat_tools::mkfs(&image, mib << 20, options).then_some(Self { place })
    }

    pub fn image(&self) -> PathBuf {
        self.place.dir().join("image")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.mnt().join(name)
    }

    pub fn mount(&self, options: &str) -> Mount {
        let options = MountOptions::parse(options).unwrap();
        let open = options.open_options();
        let mut opened = None;
        // A program being started by a concurrent test may hold a copy of the previous lock until
        // it execs.
        eventually("the lock is free", || {
            let now = VolumeMut::open(&self.image(), &open, &options.write);
            let is_busy = matches!(&now, Err(error) if error.to_string().contains("in use"));
            opened = Some(now);
            !is_busy
        });
        let volume = opened.unwrap().unwrap();
        assert_eq!(volume.format(), "exfat");
        mount_volume(volume.volume().clone(), &self.place.mnt(), &options).unwrap()
    }

    /// Unmounts, and checks the volume with fsck.exfat.
    pub fn done(&self, mut mount: Mount) {
        mount.unmount().unwrap();
        mount.wait().unwrap();
        drop(mount);
        self.judge();
    }

    #[track_caller]
    pub fn judge(&self) {
        assert_clean(&self.image());
    }

    /// Runs a shell script in the directory of the image and the mountpoint.
    #[track_caller]
    pub fn shell(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.place.dir());
        let (ok, text) = run(&mut command);
        assert!(ok, "{script}: {text}");
    }
}
