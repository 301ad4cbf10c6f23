//! exFAT volumes that mkfs.exfat makes and fsck.exfat judges.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use forerun::unstable::VolumeMut;
use forerun_fuse::{Mount, MountOptions, mount_volume};
use forerun_testkit::{eventually, require};

use super::{Place, can_mount, run};

/// An exFAT volume in a file, made by mkfs.exfat, and a place to mount it on.
pub struct Volume {
    /// Where both are.
    pub place: Place,
}

impl Volume {
    /// Makes a volume of so many MiB with these options of mkfs.exfat.
    pub fn new(name: &str, mib: u64, options: &[&str]) -> Option<Self> {
        let tools = ["mkfs.exfat", "fsck.exfat"].map(require::program);
        if !can_mount() || tools.contains(&None) {
            return None;
        }
        let place = Place::new(name);
        let image = place.dir().join("image");
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let (ok, text) = run(Command::new("mkfs.exfat").args(options).arg(&image));
        assert!(ok, "{text}");
        Some(Self { place })
    }

    /// Returns the path of the volume's file.
    pub fn image(&self) -> PathBuf {
        self.place.dir().join("image")
    }

    /// Returns a path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.mnt().join(name)
    }

    /// Mounts it in this process.
    pub fn mount(&self, options: &str) -> Mount {
        let options = MountOptions::parse(options).unwrap();
        let open = options.open_options();
        let mut opened = None;
        // A program that another test is just starting may hold a copy of the last lock until it runs.
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

    /// Unmounts, and has fsck.exfat judge the volume.
    pub fn done(&self, mut mount: Mount) {
        mount.unmount().unwrap();
        mount.wait().unwrap();
        drop(mount);
        self.judge();
    }

    /// Has fsck.exfat judge the volume.
    #[track_caller]
    pub fn judge(&self) {
        let (ok, text) = run(Command::new("fsck.exfat").arg("-n").arg(self.image()));
        assert!(ok && text.contains("clean"), "{text}");
    }

    /// Runs a script in the directory of image and mountpoint.
    #[track_caller]
    pub fn shell(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.place.dir());
        let (ok, text) = run(&mut command);
        assert!(ok, "{script}: {text}");
    }
}
