//! A helper process outside the sandbox that mounts and unmounts for its server.
//!
//! A sandboxed process can neither mount nor unmount, nor run fusermount3. So a server starts the
//! helper before it enters its sandbox, and sends requests to it. The few requests contain no path
//! to mount on: the helper has the mount's command line. It reads no byte of an image.

pub mod packet;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned;

use crate::{MountError, UmountError, Unmounted};
use packet::Packet;

/// First words of requests and answers.
pub mod word {
    pub const ATTACH: &str = "attach";
    pub const ADOPT: &str = "adopt";
    pub const UNMOUNT: &str = "unmount";
    pub const UNMOUNT_UNUSED: &str = "unmount-unused";
    pub const ANSWERS: &str = "answers";
    pub const LIFT: &str = "lift";
    pub const CALL: &str = "call";
    pub const WATCH: &str = "watch";
    pub const SECOND: &str = "second";
    pub const DONE: &str = "done";
    pub const IN_USE: &str = "in-use";
    pub const FAILED: &str = "failed";
}

/// A handle to the helper. The helper ends with the last handle or with the server.
#[derive(Clone, Debug)]
pub struct Outside(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    /// Taken when the handle is dropped.
    socket: Mutex<Option<OwnedFd>>,
    process: Child,
}

/// Waits for the helper, so that a failed mount leaves no process behind.
impl Drop for Handle {
    fn drop(&mut self) {
        let mut socket = self.socket.lock().unpoisoned();
        *socket = None;
        let _ended = self.process.wait();
    }
}

impl PartialEq for Outside {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Outside {}

/// Separates the text of an error from its hint.
pub const HINT: char = '\0';

pub struct MountedOutside {
    pub connection: OwnedFd,
    pub device: (u32, u32),
    pub path: PathBuf,
    pub watchdog: Option<OwnedFd>,
}

impl Outside {
    /// Creates a handle to `process`, which serves the other end of `socket`.
    #[must_use]
    pub fn new(socket: OwnedFd, process: Child) -> Self {
        let socket = Mutex::new(Some(socket));
        Self(Arc::new(Handle { socket, process }))
    }

    /// Tells the helper about a mount that this server takes over.
    pub(crate) fn adopt_mount(&self, device: (u32, u32), path: &Path) -> io::Result<()> {
        let request = [word::ADOPT.as_bytes(), b" ", &place(device, path)].concat();
        self.done(&request, &[]).map(drop)
    }

    pub(crate) fn attach(&self, writable: bool) -> Result<MountedOutside, MountError> {
        let how = if writable { "rw" } else { "ro" };
        let request = format!("{} {how}", word::ATTACH);
        let failed = |error: io::Error| {
            let text = error.to_string();
            let (message, hint) = match text.split_once(HINT) {
                Some((message, hint)) => (message.to_string(), Some(hint.to_string())),
                None => (text, None),
            };
            MountError::Outside { message, hint }
        };
        let answer = self.done(request.as_bytes(), &[]).map_err(failed)?;
        let place = parse_place(&answer.bytes);
        let mut descriptors = answer.descriptors.into_iter();
        match (descriptors.next(), place) {
            (Some(connection), Some((device, path))) => Ok(MountedOutside {
                connection,
                device,
                path,
                watchdog: descriptors.next(),
            }),
            _ => Err(failed(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Unmounts the mount of `connection`; if it is in use, only with `also_in_use`.
    pub(crate) fn unmount(
        &self,
        connection: &OwnedFd,
        also_in_use: bool,
    ) -> Result<Unmounted, UmountError> {
        let word = if also_in_use {
            word::UNMOUNT
        } else {
            word::UNMOUNT_UNUSED
        };
        let answer = self.ask(word.as_bytes(), &[connection.as_fd()]);
        let answer = answer.map_err(|error| UmountError::Outside(error.to_string()))?;
        match &*answer.word {
            word::DONE => Ok(Unmounted::Done),
            word::IN_USE => Ok(Unmounted::StillInUse),
            _ => Err(UmountError::Outside(answer.text)),
        }
    }

    pub(crate) fn answers(&self) -> io::Result<()> {
        self.done(word::ANSWERS.as_bytes(), &[]).map(drop)
    }

    /// Raises the mount's kernel readahead. Returns whether that succeeded.
    pub(crate) fn lift(&self, readahead: u64) -> bool {
        let request = format!("{} {readahead}", word::LIFT);
        self.done(request.as_bytes(), &[]).is_ok()
    }

    /// Returns the contents of `/proc/THREAD/syscall`, which needs the privilege to trace the
    /// thread.
    pub(crate) fn call_of(&self, thread: u32) -> io::Result<String> {
        let request = format!("{} {thread}", word::CALL);
        Ok(self.done(request.as_bytes(), &[])?.text)
    }

    pub(crate) fn second(&self, connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let answer = self.done(word::SECOND.as_bytes(), &[connection])?;
        let mut descriptors = answer.descriptors.into_iter();
        descriptors
            .next()
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Makes the helper abort the connection once this server is dead, that is, at end of file on
    /// `lifeline`. Only for mounts that no successor serves.
    pub fn watch(&self, lifeline: BorrowedFd<'_>) -> io::Result<()> {
        self.done(word::WATCH.as_bytes(), &[lifeline]).map(drop)
    }

    fn done(&self, request: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Packet> {
        let answer = self.ask(request, descriptors)?;
        match &*answer.word {
            word::DONE => Ok(answer),
            _ => Err(io::Error::other(answer.text)),
        }
    }

    fn ask(&self, request: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Packet> {
        let ended = || {
            let text = "the process outside of the sandbox has ended";
            io::Error::new(io::ErrorKind::BrokenPipe, text)
        };
        let socket = self.0.socket.lock();
        let socket = socket.unpoisoned();
        let socket = socket.as_ref().ok_or_else(ended)?;
        packet::send(socket, request, descriptors)?;
        packet::receive(socket)?.ok_or_else(ended)
    }
}

/// Parses bytes as a message, for fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn exercise(bytes: &[u8]) {
    let sent = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    );
    let Ok((one, other)) = sent else { return };
    if packet::send(&one, bytes, &[]).is_err() {
        return;
    }
    drop(one);
    let Ok(Some(packet)) = packet::receive(&other) else {
        return;
    };
    if let Some((device, path)) = parse_place(&packet.bytes) {
        assert_eq!(parse_place(&place(device, &path)), Some((device, path)));
    }
}

/// Encodes a device and path for [`parse_place`].
pub fn place(device: (u32, u32), path: &Path) -> Vec<u8> {
    let (major, minor) = device;
    let numbers = format!("{major} {minor} ");
    [numbers.as_bytes(), path.as_os_str().as_bytes()].concat()
}

pub fn parse_place(bytes: &[u8]) -> Option<((u32, u32), PathBuf)> {
    let mut parts = bytes.splitn(3, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let device = (number()?, number()?);
    let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
    Some((device, path))
}
