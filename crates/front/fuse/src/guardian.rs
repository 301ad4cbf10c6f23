//! `auto_unmount`: a process that unmounts when this one has ended, for whatever reason.
//!
//! It is a shell that waits at the other end of a pipe. A line through the pipe says that all is well.
//! If the pipe ends without one, this process was killed, and its mount has to be detached. fusermount3
//! has such a mode of its own, but it asks the mount whether it is dead by opening its root. A kernel
//! that was told to open directories by itself does that for a dead mount too, and older kernels ask as
//! a user without access. The shell asks nothing: the number and the device of the mount in
//! `/proc/self/mountinfo` say whether it still is where it was.
//!
//! The shell leaves a mount alone if it was moved, if another one is mounted on it or in it, or if its
//! path leads elsewhere by now: umount(8) would take the other one.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forerun_sys::mount_table::MountEntry;

/// `$1` is the number of the mount, `$2` its device, `$3` the directory that has the mountpoint, `$4`
/// its device and inode, `$5` the name of the mountpoint in it. umount(8) is to look up nothing (`-c`,
/// `-i`), which only root may ask of it. Signals of a terminal or of a service manager are for the
/// process that serves; this one follows it.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
look() {
    at= other=
    while read -r id parent device _ point _; do
        [ "$id $device" = "$1 $2" ] && at=$point
        [ "$parent" = "$1" ] && other=$point
    done < /proc/self/mountinfo
}
look "$1" "$2"
was=$at
read -r _ && exit 0
look "$1" "$2"
[ -n "$at" ] && [ "$at" = "$was" ] && [ -z "$other" ] || exit
cd -P -- "$3" && [ "$(stat -c %d:%i .)" = "$4" ] || exit
umount -c -i -l -- "./$5" || umount -l -- "./$5" ||
    fusermount3 -u -z -- "./$5" || fusermount -u -z -- "./$5"
"#;

/// The process. Dropping it lets it go without unmounting.
#[derive(Debug)]
pub struct Guardian {
    /// Nothing where another process has started it.
    process: Option<Child>,
    pipe: Option<File>,
}

impl Guardian {
    /// Starts it for this mount.
    pub fn start(mount: &MountEntry) -> io::Result<Self> {
        let (major, minor) = mount.device;
        let parent = mount.mount_point.parent().unwrap_or(Path::new("/"));
        let name = mount.mount_point.file_name().unwrap_or_default();
        let directory = parent.metadata()?;
        let mut process = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "forerun-auto-unmount"])
            .args([mount.id.to_string(), format!("{major}:{minor}")])
            .arg(parent)
            .arg(format!("{}:{}", directory.dev(), directory.ino()))
            .arg(name)
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

    /// Takes over a guardian that another process has started. That process holds the pipe too, or has
    /// held it. The pipe ends when the last process that holds it ends.
    pub fn inherited(pipe: OwnedFd) -> Self {
        Self {
            process: None,
            pipe: Some(File::from(pipe)),
        }
    }

    /// Hands over the pipe, which then ends with its new holder.
    pub fn into_pipe(mut self) -> Option<OwnedFd> {
        // Not waited for: it ends after this process.
        self.process = None;
        self.pipe.take().map(OwnedFd::from)
    }

    /// Duplicates the pipe, for another process to hold as well.
    pub fn share(&self) -> io::Result<Option<OwnedFd>> {
        let pipe = self.pipe.as_ref().map(File::try_clone).transpose()?;
        Ok(pipe.map(OwnedFd::from))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // An error says that the process is gone already.
            let _gone = pipe.write_all(b"done\n");
        }
        if let Some(Err(error)) = self.process.as_mut().map(Child::wait) {
            tracing::debug!("waiting for the auto_unmount process: {error}");
        }
    }
}
