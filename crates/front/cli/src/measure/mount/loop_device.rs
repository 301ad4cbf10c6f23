//! Loop devices, set up by losetup(8).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure::active;
use crate::measure::process::describe;

/// A loop device, detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

/// How an image is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    pub writable: bool,
    /// Where the image starts in its file.
    pub offset: u64,
    /// Its length; to the end of the file where there is none.
    pub size: Option<u64>,
}

impl LoopDevice {
    pub fn attach(image: &Path, how: Attach) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).stdin(Stdio::null());
        if !how.writable {
            losetup.arg("--read-only");
        }
        if how.offset > 0 {
            losetup.arg("--offset").arg(how.offset.to_string());
        }
        if let Some(size) = how.size {
            losetup.arg("--sizelimit").arg(size.to_string());
        }
        losetup.arg(image);
        let path = active::attach(|| {
            let output = losetup.output().with_context(|| describe(&losetup))?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{}: {said}", describe(&losetup));
            Ok(PathBuf::from(
                String::from_utf8_lossy(&output.stdout).trim(),
            ))
        })?;
        Ok(Self { path })
    }

    /// Returns the name of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut losetup = Command::new("losetup");
        losetup
            .arg("--detach")
            .arg(&self.path)
            .stderr(Stdio::null());
        // A device that stays is seen in `losetup --list`; nothing can be done about it here.
        let _best_effort = losetup.status();
        active::detached(&self.path);
    }
}
