//! The process outside of the sandbox: answers the requests of its server until that ends.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::attach::{Attached, attach};
use crate::guardian::Guardian;
use crate::mountpoint::prepare;
use crate::namespace::{forget, within};
use crate::outside::packet::{self, Packet};
use crate::outside::{parse_place, place, word};
use crate::place::answers;
use crate::umount::take_down;
use crate::unmounter::Unmounter;
use crate::{
    MountEntry, MountError, MountOptions, UmountError, UmountOptions, Unmounted, bdi, mounts,
};

/// The state of the one mount that the process looks after.
struct ServedMounts<'s> {
    dir: PathBuf,
    options: &'s MountOptions,
    /// Set once, when the mount is made or taken over.
    mount: Option<MountEntry>,
}

/// The word of an answer, its text and its descriptors.
type OutsideAnswer = Result<(&'static str, Vec<u8>, Vec<OwnedFd>), String>;

/// Answers requests from `socket` about a mount on `dir` with these options. Returns when the server
/// has ended.
///
/// # Errors
/// Those of the socket.
pub fn serve_outside(socket: &OwnedFd, dir: &Path, options: &MountOptions) -> io::Result<()> {
    let mut serving = ServedMounts {
        dir: dir.to_path_buf(),
        options,
        mount: None,
    };
    while let Some(request) = packet::receive(socket)? {
        let answer = serving.answer(request);
        let (word, text, descriptors) =
            answer.unwrap_or_else(|why| (word::FAILED, why.into_bytes(), Vec::new()));
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        packet::send(
            socket,
            &[word.as_bytes(), b" ", &text].concat(),
            &descriptors,
        )?;
    }
    Ok(())
}

fn done(text: impl Into<Vec<u8>>) -> OutsideAnswer {
    Ok((word::DONE, text.into(), Vec::new()))
}

impl ServedMounts<'_> {
    fn answer(&mut self, request: Packet) -> OutsideAnswer {
        match &*request.word {
            word::ATTACH => self.attach(request.text == "rw"),
            word::ADOPT => self.adopt(&request.bytes),
            word::UNMOUNT => self.unmount(request.descriptors, Unmounter::unmount),
            word::UNMOUNT_UNUSED => self.unmount(request.descriptors, Unmounter::unmount_unused),
            word::ANSWERS => self.answers(),
            word::LIFT => self.lift(&request.text),
            word::CALL => call_of(&request.text).map_or_else(|error| Err(error.to_string()), done),
            _ => Err("not a request".to_string()),
        }
    }

    fn attach(&mut self, writable: bool) -> OutsideAnswer {
        if self.mount.is_some() {
            return Err("mounted already".to_string());
        }
        let text = |error: MountError| error.to_string();
        let source = self.options.fsname.clone();
        let source = OsString::from(source.unwrap_or_else(|| "forerun".into()));
        let namespace = self.options.namespace.as_ref();
        let made = within(namespace, || {
            make(&self.dir, &source, self.options, writable)
        });
        let made = made.map_err(MountError::Namespace).map_err(text)?;
        let (mount, descriptors) = made.map_err(text)?;
        if namespace.is_some() {
            forget(mount.device).map_err(|error| error.to_string())?;
        }
        let answer = place(mount.device, &mount.mount_point);
        self.mount = Some(mount);
        Ok((word::DONE, answer, descriptors))
    }

    /// Records the mount of another server that this one takes over.
    fn adopt(&mut self, place: &[u8]) -> OutsideAnswer {
        let (None, Some((device, path))) = (&self.mount, parse_place(place)) else {
            return Err("not a mount that can be taken over".to_string());
        };
        let is_it = |entry: &MountEntry| entry.device == device && entry.mount_point == path;
        let all = within(self.options.namespace.as_ref(), mounts);
        let all = all.flatten().map_err(|error| error.to_string())?;
        // One that was detached lazily is in no table, and need not be unmounted.
        self.mount = all.into_iter().rfind(is_it);
        done("")
    }

    fn unmount(
        &self,
        descriptors: Vec<OwnedFd>,
        unmount: fn(&Unmounter) -> Result<Unmounted, UmountError>,
    ) -> OutsideAnswer {
        let connection = descriptors.into_iter().next();
        let (Some(connection), Some(mount)) = (connection, &self.mount) else {
            return done("");
        };
        let namespace = self.options.namespace.clone();
        match unmount(&Unmounter::of(mount.clone(), connection, namespace)) {
            Ok(Unmounted::Done) => done(""),
            Ok(Unmounted::StillInUse) => Ok((word::IN_USE, Vec::new(), Vec::new())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn answers(&self) -> OutsideAnswer {
        let Some(mount) = &self.mount else {
            return Err("nothing is mounted".to_string());
        };
        let answers = answers(&mount.mount_point, self.options);
        answers.map_or_else(|error| Err(error.to_string()), |()| done(""))
    }

    fn lift(&self, readahead: &str) -> OutsideAnswer {
        match (&self.mount, readahead.parse()) {
            (Some(mount), Ok(readahead)) if bdi::lift(mount.device, readahead) => done(""),
            _ => Err("the readahead stays".to_string()),
        }
    }
}

/// Mounts, and starts the process of `auto_unmount`. Returns the mount, and the descriptors of its connection
/// and of the pipe to that process.
fn make(
    dir: &Path,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<(MountEntry, Vec<OwnedFd>), MountError> {
    let directory = prepare(dir)?;
    let Attached { connection, mount } = attach(&directory, source, options, writable)?;
    let guardian = options.auto_unmount.then(|| Guardian::start(&mount));
    let mut descriptors = vec![connection];
    match guardian.transpose() {
        Ok(guardian) => descriptors.extend(guardian.and_then(Guardian::into_pipe)),
        Err(error) => {
            let lazily = UmountOptions {
                lazy: true,
                ..UmountOptions::default()
            };
            let _taken_down = take_down(&mount, lazily);
            return Err(MountError::Guardian(error));
        }
    }
    Ok((mount, descriptors))
}

/// Reads from `/proc` which system call a thread is in.
fn call_of(thread: &str) -> io::Result<String> {
    let thread: u32 = thread.parse().map_err(io::Error::other)?;
    fs::read_to_string(format!("/proc/{thread}/syscall"))
}
