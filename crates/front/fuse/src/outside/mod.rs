//! A process outside of the sandbox, which mounts and unmounts for its server.
//!
//! A process in a sandbox can neither mount nor unmount, nor run fusermount3. So a server that is to be
//! confined starts another process first, and sends it requests. These are few and name no path: the
//! other process has the command line of the mount. It reads no byte of an image.

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

/// The first words of requests and answers.
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

/// The process, as the server sees it. It ends with the last handle, or with the server.
#[derive(Clone, Debug)]
pub struct Outside(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    /// Taken when the handle is dropped.
    socket: Mutex<Option<OwnedFd>>,
    process: Child,
}

/// A mount that fails leaves no process behind when its own has ended.
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

/// A mount that was just made.
pub struct MountedOutside {
    pub connection: OwnedFd,
    pub device: (u32, u32),
    pub path: PathBuf,
    /// The pipe to the watchdog.
    pub watchdog: Option<OwnedFd>,
}

impl Outside {
    /// Creates a handle to `process`, which serves the other end of `socket`.
    #[must_use]
    pub fn new(socket: OwnedFd, process: Child) -> Self {
        let socket = Mutex::new(Some(socket));
        Self(Arc::new(Handle { socket, process }))
    }

    /// Passes on the mount with this device number and path, which this server takes over.
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

    /// Unmounts what `connection` is of; where it is in use, only `also_in_use`.
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

    /// Waits until the mount answers a request, in the namespace that has it.
    pub(crate) fn answers(&self) -> io::Result<()> {
        self.done(word::ANSWERS.as_bytes(), &[]).map(drop)
    }

    /// Raises the kernel's readahead of the mount. Returns whether that worked.
    pub(crate) fn lift(&self, readahead: u64) -> bool {
        let request = format!("{} {readahead}", word::LIFT);
        self.done(request.as_bytes(), &[]).is_ok()
    }

    /// Returns `/proc/THREAD/syscall`, which takes the right to trace the thread.
    pub(crate) fn call_of(&self, thread: u32) -> io::Result<String> {
        let request = format!("{} {thread}", word::CALL);
        Ok(self.done(request.as_bytes(), &[])?.text)
    }

    /// Opens a second file of the connection.
    pub(crate) fn second(&self, connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let answer = self.done(word::SECOND.as_bytes(), &[connection])?;
        let mut descriptors = answer.descriptors.into_iter();
        descriptors
            .next()
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Has the process abort the connection once this server is dead, which the end of `lifeline` says. No other
    /// process serves the mount then.
    ///
    /// # Errors
    /// The errors of the socket.
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

    /// Asks the other process, and waits for the answer.
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

/// Takes bytes as a message, for the fuzz targets.
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

/// Encodes a place for [`parse_place`].
pub fn place(device: (u32, u32), path: &Path) -> Vec<u8> {
    let (major, minor) = device;
    let numbers = format!("{major} {minor} ");
    [numbers.as_bytes(), path.as_os_str().as_bytes()].concat()
}

/// Parses `8 1 /mnt`.
pub fn parse_place(bytes: &[u8]) -> Option<((u32, u32), PathBuf)> {
    let mut parts = bytes.splitn(3, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
    let device = (number()?, number()?);
    let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
    Some((device, path))
}
