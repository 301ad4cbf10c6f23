//! Changes of exFAT volumes, compared with exfat-fuse. Both mount a loop device, since exfat-fuse
//! does not accept files.
//!
//! exfat-fuse accepts `dirsync` but flushes nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::figures::Row;
use crate::inputs::Inputs;
use crate::programs::{drop_caches, has, output, remove, turns};

/// A workload, with its mount options.
#[derive(Clone, Copy)]
enum Work {
    Create,
    Read,
    Remove { options: &'static str },
    RemoveBig,
}

const WORKS: [(Work, &str); 5] = [
    (Work::Create, "exFAT: create 10,000 files"),
    (Work::Read, "exFAT: read 10,000 files"),
    (Work::Remove { options: "rw" }, "exFAT: remove 10,000 files"),
    (
        Work::Remove {
            options: "rw,dirsync",
        },
        "exFAT: remove 10,000 files, dirsync",
    ),
    (Work::RemoveBig, "exFAT: remove 4 GB, dirsync"),
];

/// A volume on a loop device. Detached and removed when dropped.
struct Volume {
    image: PathBuf,
    device: PathBuf,
    dir: PathBuf,
}

impl Volume {
    fn new(inputs: &Inputs) -> Result<Self> {
        let (image, dir) = (inputs.dir.join("volume.exfat"), inputs.dir.join("mnt"));
        remove(&image)?;
        fs::create_dir_all(&dir)?;
        File::create(&image)?.set_len((inputs.scale.exfat_big * 2).max(8 << 28))?;
        output(Command::new("mkfs.exfat").args(["-c", "128K"]).arg(&image))?;
        let mut attach = Command::new("losetup");
        let device = output(attach.args(["--find", "--show"]).arg(&image))?;
        Ok(Self {
            image,
            dir,
            device: device.trim().into(),
        })
    }

    /// Runs a function in a mount of forerun or of exfat-fuse.
    fn mounted<T>(
        &self,
        forerun: Option<&Inputs>,
        options: &str,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let (mut mount, mut umount) = match forerun {
            Some(inputs) => (inputs.forerun(&["mount"]), inputs.forerun(&["umount"])),
            None => (Command::new("mount.exfat-fuse"), Command::new("umount")),
        };
        output(mount.args(["-o", options]).arg(&self.device).arg(&self.dir))?;
        let done = work(&self.dir);
        output(umount.arg(&self.dir))?;
        done
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // After a failure, the mount may remain.
        let _not_mounted = Command::new("umount")
            .arg("--quiet")
            .arg(&self.dir)
            .output();
        let _best_effort = Command::new("losetup")
            .arg("--detach")
            .arg(&self.device)
            .output();
        let _best_effort = fs::remove_file(&self.image);
    }
}

pub fn measure(inputs: &Inputs, rounds: usize) -> Result<Vec<Row>> {
    if !has(&["mkfs.exfat", "fsck.exfat", "mount.exfat-fuse", "losetup"]) {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for (work, text) in WORKS {
        let ours = || run(inputs, work, Some(inputs));
        let theirs = || run(inputs, work, None);
        let seconds = turns(text, rounds, ours, theirs)?;
        rows.push(Row::new("exfat", text, "exfat-fuse", seconds));
    }
    Ok(rows)
}

/// Measures a workload on a separate volume, which forerun has filled.
fn run(inputs: &Inputs, work: Work, by: Option<&Inputs>) -> Result<f64> {
    let volume = Volume::new(inputs)?;
    let count = inputs.scale.exfat_files;
    volume.mounted(Some(inputs), "rw", |dir| match work {
        Work::Create => Ok(()),
        Work::Read | Work::Remove { .. } => create(dir, count),
        Work::RemoveBig => {
            let mut allocate = Command::new("fallocate");
            allocate.args(["-l", &inputs.scale.exfat_big.to_string()]);
            output(allocate.arg(dir.join("big"))).map(drop)
        }
    })?;
    let options = match work {
        Work::Create | Work::Read => "rw",
        Work::Remove { options } => options,
        Work::RemoveBig => "rw,dirsync",
    };
    let seconds = volume.mounted(by, options, |dir| {
        drop_caches()?;
        let start = Instant::now();
        match work {
            Work::Create => {
                create(dir, count)?;
                File::open(&volume.device)?.sync_data()?;
            }
            Work::Read => {
                let read = files(dir)?.iter().try_fold(0, |sum, path| {
                    Ok::<_, std::io::Error>(sum + fs::read(path)?.len())
                })?;
                ensure!(
                    read == usize::try_from(count)? * CONTENTS.len(),
                    "{read} bytes"
                );
            }
            Work::Remove { .. } => files(dir)?.iter().try_for_each(fs::remove_file)?,
            Work::RemoveBig => fs::remove_file(dir.join("big"))?,
        }
        Ok(start.elapsed().as_secs_f64())
    })?;
    if by.is_some() {
        let said = output(Command::new("fsck.exfat").arg("-n").arg(&volume.image))?;
        ensure!(said.contains("clean"), "fsck.exfat: {said}");
    }
    Ok(seconds)
}

const CONTENTS: [u8; 4000] = [0x5A; 4000];

/// Makes files in 100 directories.
fn create(dir: &Path, count: u64) -> Result<()> {
    for n in 0..count {
        let dir = dir.join(format!("directory {}", n % 100));
        if n < 100 {
            fs::create_dir(&dir)?;
        }
        fs::write(dir.join(format!("file {n:05}.txt")), CONTENTS)?;
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for below in fs::read_dir(dir)? {
        for file in fs::read_dir(below?.path())? {
            files.push(file?.path());
        }
    }
    Ok(files)
}
