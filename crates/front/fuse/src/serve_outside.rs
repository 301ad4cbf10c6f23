//! The privileged helper: answers its server's requests until the server ends.
//!
//! With `auto_unmount` it then becomes the watchdog of the mount. The server, its supervisor and
//! later servers hold the write end of a pipe. They write a byte when the mount has ended normally.
//! If the pipe ends without it, they were killed, and the mount is detached. fusermount3 has a
//! similar mode, but it tests whether the mount is dead by opening its root. A kernel that opens
//! directories itself succeeds even on a dead mount, and older kernels check as a user without
//! access.

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use forerun_sys::mount_table::{MountEntry, mounts};
use forerun_sys::mountpoint::{Sight, find_mount};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::abort::{Abort, abort};
use crate::attach::{Attached, attach};
use crate::connection::second;
use crate::liveness::{Liveness, is_fuse, liveness_of};
use crate::mountpoint::prepare;
use crate::namespace::{forget, within};
use crate::outside::packet::{self, Packet};
use crate::outside::{HINT, parse_place, place, word};
use crate::place::answers;
use crate::umount::take_down;
use crate::unmounter::Unmounter;
use crate::{MountError, MountOptions, UmountError, UmountOptions, Unmounted, bdi};

struct ServedMounts<'s> {
    dir: PathBuf,
    options: &'s MountOptions,
    /// Whether the mount was made or taken over.
    has_begun: bool,
    /// `None` if the mount was detached before it was taken over.
    mount: Option<MountEntry>,
    /// Aborts the mount's connection; `None` if not permitted.
    abort: Option<Abort>,
    /// Becomes readable when the server is dead and its connection must be aborted.
    lifeline: Option<OwnedFd>,
    /// Ends with the last process of the mount.
    watchdog: Option<PipeReader>,
}

/// The word of an answer, its text and its descriptors.
type OutsideAnswer = Result<(&'static str, Vec<u8>, Vec<OwnedFd>), String>;

/// Answers requests from `socket` about a mount on `dir` with these options. Returns when the
/// server has ended.
pub fn serve_outside(socket: &OwnedFd, dir: &Path, options: &MountOptions) -> io::Result<()> {
    let mut serving = ServedMounts::new(dir, options);
    // If the server died while it waited for an answer, its mount still needs the watchdog.
    let served = serving.serve(socket);
    serving.watch_processes();
    served
}

fn done(text: impl Into<Vec<u8>>) -> OutsideAnswer {
    Ok((word::DONE, text.into(), Vec::new()))
}

impl<'s> ServedMounts<'s> {
    fn new(dir: &Path, options: &'s MountOptions) -> Self {
        Self {
            dir: dir.to_path_buf(),
            options,
            has_begun: false,
            mount: None,
            abort: None,
            lifeline: None,
            watchdog: None,
        }
    }

    fn serve(&mut self, socket: &OwnedFd) -> io::Result<()> {
        loop {
            if self.waits_in_vain(socket)? {
                self.abort();
                continue;
            }
            let Some(request) = packet::receive(socket)? else {
                return Ok(());
            };
            let answer = self.answer(request);
            let (word, text, descriptors) =
                answer.unwrap_or_else(|why| (word::FAILED, why.into_bytes(), Vec::new()));
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            let answer = [word.as_bytes(), b" ", &text].concat();
            packet::send(socket, &answer, &descriptors)?;
        }
    }

    fn answer(&mut self, request: Packet) -> OutsideAnswer {
        match &*request.word {
            word::ATTACH => self.attach(request.text == "rw"),
            word::ADOPT => self.adopt(&request.bytes),
            word::UNMOUNT => self.unmount(request.descriptors, Unmounter::unmount),
            word::UNMOUNT_UNUSED => self.unmount(request.descriptors, Unmounter::unmount_unused),
            word::ANSWERS => self.answers(),
            word::LIFT => self.lift(&request.text),
            word::WATCH => self.watch(request.descriptors),
            word::SECOND => second_of(&request.descriptors),
            word::CALL => call_of(&request.text).map_or_else(|error| Err(error.to_string()), done),
            _ => Err("not a request".to_string()),
        }
    }

    fn attach(&mut self, writable: bool) -> OutsideAnswer {
        if self.has_begun {
            return Err("mounted already".to_string());
        }
        let text = |error: MountError| match error.hint() {
            Some(hint) => format!("{error}{HINT}{hint}"),
            None => error.to_string(),
        };
        let source = self.options.fsname.clone();
        let source = OsString::from(source.unwrap_or_else(|| "forerun".into()));
        let namespace = self.options.namespace.as_ref();
        let pipe = self.options.auto_unmount.then(io::pipe).transpose();
        let pipe = pipe.map_err(|error| format!("auto_unmount: {error}"))?;
        let made = within(namespace, || {
            let directory = prepare(&self.dir)?;
            attach(&directory, &source, self.options, writable)
        });
        let made = made.map_err(MountError::Namespace).map_err(text)?;
        let Attached { connection, mount } = made.map_err(text)?;
        let mut descriptors = vec![connection];
        if let Some((ours, theirs)) = pipe {
            self.watchdog = Some(ours);
            descriptors.push(theirs.into());
        }
        if namespace.is_some() {
            forget(mount.device).map_err(|error| error.to_string())?;
        }
        let answer = place(mount.device, &mount.mount_point);
        self.look_after(Some(mount));
        Ok((word::DONE, answer, descriptors))
    }

    /// Records another server's mount that this server takes over.
    fn adopt(&mut self, place: &[u8]) -> OutsideAnswer {
        let (false, Some((device, path))) = (self.has_begun, parse_place(place)) else {
            return Err("not a mount that can be taken over".to_string());
        };
        let is_it = |entry: &MountEntry| {
            is_fuse(entry) && entry.device == device && entry.mount_point == path
        };
        let all = within(self.options.namespace.as_ref(), mounts);
        let all = all.flatten().map_err(|error| error.to_string())?;
        // A lazily detached mount is not in the table and need not be unmounted.
        self.look_after(all.into_iter().rfind(is_it));
        done("")
    }

    fn look_after(&mut self, mount: Option<MountEntry>) {
        self.has_begun = true;
        let opened = mount.as_ref().map(|mount| Abort::of(mount.device));
        self.abort = opened.and_then(|opened| {
            let told = opened.inspect_err(|error| tracing::debug!("no file to abort: {error}"));
            told.ok()
        });
        self.mount = mount;
    }

    fn watch(&mut self, descriptors: Vec<OwnedFd>) -> OutsideAnswer {
        self.lifeline = descriptors.into_iter().next();
        done("")
    }

    /// Waits for a request or the end of the server. Returns whether the server is dead. Its socket
    /// may then still be open: a thread that waits in the kernel for an answer keeps all its files
    /// open.
    fn waits_in_vain(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        let Some(lifeline) = &self.lifeline else {
            return Ok(false);
        };
        let mut fds = [socket, lifeline].map(|fd| PollFd::new(fd, PollFlags::IN));
        while let Err(error) = poll(&mut fds, None) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        let is_dead = fds[0].revents().is_empty();
        if is_dead {
            self.lifeline = None;
        }
        Ok(is_dead)
    }

    /// Fails the server's unanswered requests. The mount stays: an apparently empty directory would
    /// mislead users.
    fn abort(&self) {
        let aborted = match (&self.abort, &self.mount) {
            (Some(abort), _) => abort.abort(),
            (None, Some(mount)) => {
                within(self.options.namespace.as_ref(), || abort(mount)).flatten()
            }
            (None, None) => Ok(()),
        };
        if let Err(error) = aborted {
            tracing::debug!("the connection of a dead server stays: {error}");
        }
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

    /// Waits until all processes of the mount have ended, and detaches the mount if they were
    /// killed. Keeps a mount that was moved, is covered, contains another mount, or is no longer at
    /// its path.
    fn watch_processes(&mut self) {
        let (Some(mut pipe), Some(mount)) = (self.watchdog.take(), &self.mount) else {
            return;
        };
        let ended = loop {
            match pipe.read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        if !matches!(ended, Ok(0)) {
            return;
        }
        let lazily = UmountOptions {
            lazy: true,
            ..UmountOptions::default()
        };
        let detached = within(self.options.namespace.as_ref(), || {
            match find_mount(mount) {
                // If a process hung for long, another mount may have the same IDs by now.
                Ok(Sight::Visible(seen))
                    if seen.path() == mount.mount_point && liveness_of(mount) == Liveness::Dead =>
                {
                    take_down(mount, lazily)
                }
                _ => Ok(()),
            }
        });
        if let Ok(Err(error)) = detached {
            tracing::error!("{error}");
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

fn second_of(descriptors: &[OwnedFd]) -> OutsideAnswer {
    let connection = descriptors.first().ok_or("no connection")?;
    let second = second(connection.as_fd()).map_err(|error| error.to_string())?;
    Ok((word::DONE, Vec::new(), vec![second]))
}

fn call_of(thread: &str) -> io::Result<String> {
    let thread: u32 = thread.parse().map_err(io::Error::other)?;
    fs::read_to_string(format!("/proc/{thread}/syscall"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use forerun_sys::mountpoint::mount_at;
    use forerun_testkit::{children, require, temp_dir};
    use rustix::mount::UnmountFlags;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::connection::is_connected;

    #[test]
    fn one_mount_is_adopted_and_only_one_of_fuse() {
        let all = mounts().unwrap();
        let proc = all.iter().find(|entry| entry.fstype == "proc").unwrap();
        let request = place(proc.device, &proc.mount_point);
        let options = MountOptions::default();
        let mut serving = ServedMounts::new(Path::new("/nowhere"), &options);
        serving.adopt(&request).unwrap();
        assert!(serving.mount.is_none());
        let refused = serving.adopt(&request).unwrap_err();
        assert_eq!(refused, "not a mount that can be taken over");
        let refused = serving.attach(true).unwrap_err();
        assert_eq!(refused, "mounted already");
    }

    /// A killed server whose thread waits for an answer keeps its socket open, as this test does.
    #[test]
    fn what_a_dead_server_has_left_unanswered_fails_and_its_mount_stays() {
        if !require::root() || !require::fuse() {
            return;
        }
        let _mounts_are_free = children::forbid();
        let temp = temp_dir("outside");
        let dir = temp.path().canonicalize().unwrap();
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (server, outside) = pair.unwrap();
        let place = dir.clone();
        let serving = std::thread::spawn(move || {
            serve_outside(&outside, &place, &MountOptions::default()).unwrap();
        });
        let ask = |word: &str, descriptors: &[BorrowedFd<'_>]| {
            packet::send(&server, word.as_bytes(), descriptors).unwrap();
            let answer = packet::receive(&server).unwrap().unwrap();
            assert_eq!(answer.word, word::DONE, "{}", answer.text);
            answer.descriptors
        };
        let attached = ask("attach ro", &[]);
        let connection = attached.first().unwrap();
        // This file takes no requests, so the kernel keeps them unanswered.
        let second = ask("second", &[connection.as_fd()]);
        assert!(is_connected(second.first().unwrap()));
        let (lifeline, alive) = io::pipe().unwrap();
        ask("watch", &[lifeline.as_fd()]);
        let waits = dir.join("file");
        let waiting = std::thread::spawn(move || fs::metadata(waits));
        assert!(is_connected(connection));
        drop(alive);
        waiting.join().unwrap().unwrap_err();
        assert!(!is_connected(connection));
        let entry = mount_at(&dir).unwrap().unwrap();
        let is_there = matches!(find_mount(&entry), Ok(Sight::Visible(_)));
        rustix::mount::unmount(&dir, UnmountFlags::DETACH).unwrap();
        assert!(is_there);
        // The helper still answers.
        ask("unmount", &[connection.as_fd()]);
        drop((server, second));
        serving.join().unwrap();
    }
}
