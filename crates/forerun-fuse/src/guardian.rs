//! `auto_unmount`: a process that unmounts when this one is gone, however it went.
//!
//! A shell that waits at the other end of a pipe. A line through it says that all is well; its end
//! without one says that we were killed, and that what we served has to be detached. fusermount3 has
//! such a mode of its own, but it asks the mount whether it is dead by opening its root, which a
//! kernel that was told to open directories by itself does for the dead too, and which older ones
//! ask as a user who may not look. The shell asks nothing: the device number in
//! `/proc/self/mountinfo` says whether the mount is ours.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the mountpoint, `$2` the device number. Signals of a terminal or of a service manager are
/// for the process that serves; this one follows it.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
read -r _ && exit 0
while read -r _ _ device _; do
    [ "$device" = "$2" ] || continue
    umount -l -- "$1" || fusermount3 -u -z -- "$1" || fusermount -u -z -- "$1"
    exit
done < /proc/self/mountinfo
"#;

/// The process. Dropping it lets it go without unmounting.
#[derive(Debug)]
pub struct Guardian {
    /// Nothing where another process has started it.
    process: Option<Child>,
    pipe: Option<File>,
}

impl Guardian {
    /// Starts it for the mount of this device on `path`.
    pub fn start(path: &Path, device: (u32, u32)) -> io::Result<Self> {
        let (major, minor) = device;
        let mut process = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "forerun-auto-unmount"])
            .arg(path)
            .arg(format!("{major}:{minor}"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take();
        Ok(Self {
            process: Some(process),
            pipe: pipe.map(|pipe| File::from(OwnedFd::from(pipe))),
        })
    }

    /// One that another process has started, which holds the pipe too, or has held it. What ends the
    /// pipe is the end of the last who holds it.
    pub fn inherited(pipe: OwnedFd) -> Self {
        Self {
            process: None,
            pipe: Some(File::from(pipe)),
        }
    }

    /// Gives the pipe away: what ends it is the end of its new holder.
    pub fn into_pipe(mut self) -> Option<OwnedFd> {
        // Not waited for: it ends after this process.
        self.process = None;
        self.pipe.take().map(OwnedFd::from)
    }

    /// The pipe, to be held by another process as well.
    pub fn share(&self) -> io::Result<Option<OwnedFd>> {
        let pipe = self.pipe.as_ref().map(File::try_clone).transpose()?;
        Ok(pipe.map(OwnedFd::from))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // If it is gone already there is nobody to tell.
            let _gone = pipe.write_all(b"done\n");
        }
        if let Some(Err(error)) = self.process.as_mut().map(Child::wait) {
            tracing::debug!("waiting for the auto_unmount process: {error}");
        }
    }
}
