//! Entry points for fuzz targets, not for users.
//!
//! A socket replaces /dev/fuse: the session reads requests from it and writes answers to it, so no
//! mount and no privilege is needed. The functions panic only on a violation of the kernel
//! protocol.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::{self, ScopedJoinHandle};

use forerun::Reader;
use forerun_engine::Volume;
use forerun_io::u64_from;
use forerun_sys::threads;
use fuser::{Config, Filesystem, InitFlags, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::MountOptions;
use crate::adapter::Adapter;
use crate::adapter_mut::{AdapterMut, CoreMut, Stale};
use crate::apart::Apart;
use crate::channel::Channel;
use crate::connection::{Negotiated, init_request};
use crate::core::Core;
use crate::handover::{FromServer, FromSupervisor, Kind, Offer};
use crate::outside;
use crate::request_threads::RequestThreads;
use crate::state_table::{KnownInode, StateFile, VolumeState};

/// Bytes of a request header, and of an answer header.
const HEADER: usize = 40;
const ANSWER: usize = 16;
/// Range of valid errors in an answer.
const ERRORS: std::ops::Range<i32> = -511..0;
const MOST: usize = 64;
/// Maximum length of an answer: 1 MiB of data plus headers.
const LONGEST: usize = (1 << 20) + 4096;
/// Bit in an input's opcode: the request is a resent one.
const RESENT: u8 = 0x80;
/// Bit in the unique ID of a resent request (FUSE_UNIQUE_RESEND).
const UNIQUE_RESENT: u64 = 1 << 63;
const ANSWER_TIMEOUT: Timespec = Timespec {
    tv_sec: 4,
    tv_nsec: 0,
};

mod opcode {
    pub const LOOKUP: u8 = 1;
    pub const FORGET: u8 = 2;
    pub const READ: u8 = 15;
    pub const WRITE: u8 = 16;
    pub const SETXATTR: u8 = 21;
    pub const IOCTL: u8 = 39;
    pub const DESTROY: u8 = 38;
    pub const BATCH_FORGET: u8 = 42;
    pub const CREATE: u8 = 35;
    pub const MKDIR: u8 = 9;
    pub const READDIR: u8 = 28;
    pub const READDIRPLUS: u8 = 44;
}

pub fn image(reader: Reader, bytes: &[u8]) {
    let core = Arc::new(Core::new(reader, &MountOptions::default()));
    let pusher = Arc::new(OnceLock::new());
    let adapter = Adapter::new(core, RequestThreads::new(1), pusher, Arc::default(), true);
    serve(adapter, |_| {}, bytes);
}

pub fn volume(volume: Arc<Volume>, bytes: &[u8]) {
    // Record state for a successor, as a mount with a supervisor does.
    let state = StateFile::new().and_then(|file| VolumeState::new(&file));
    let core = CoreMut::new(volume, &MountOptions::default(), state.ok());
    let core = Arc::new(core);
    let adapter = AdapterMut::new(Arc::clone(&core), RequestThreads::new(1));
    let with_stale = |connection: BorrowedFd<'_>| {
        if let Ok(kernel) = Apart::start(connection)
            && let Some(stale) = Stale::start(kernel, Arc::downgrade(&core))
        {
            let _is_set_once = core.stale.set(stale);
        }
    };
    serve(adapter, with_stale, bytes);
}

/// Parses bytes as messages between the processes of a mount.
pub fn messages(bytes: &[u8]) {
    let Some((&descriptors, text)) = bytes.split_first() else {
        return;
    };
    let text = text.get(..16 << 10).unwrap_or(text);
    let send = || {
        let (one, other) = Channel::pair().ok()?;
        let (file, _) = UnixStream::pair().ok()?;
        let with = vec![file.as_fd(); usize::from(descriptors % 5)];
        one.send(text, &with).ok()?;
        Some(other)
    };
    if let Some(channel) = send() {
        let _said = FromServer::receive(&channel);
    }
    if let Some(channel) = send() {
        let _said = FromSupervisor::receive(&channel);
    }
    outside::exercise(text);
}

/// Parses bytes as the state of a server that died, and recovers from it.
pub fn state(bytes: &[u8]) {
    let Ok(file) = memfd_create("fuzzed-state", MemfdFlags::CLOEXEC) else {
        return;
    };
    if rustix::io::pwrite(&file, bytes, 0) != Ok(bytes.len()) {
        return;
    }
    if let Ok((mut state, inherited)) = VolumeState::inherit(file) {
        for inode in &inherited.inodes {
            state.put(inode);
        }
        let _left = state.leave(inherited.inodes.into_iter(), true);
    }
}

/// Builds seeds for [`state`]: the states of a server that died and of one that handed over.
#[must_use]
pub fn state_seeds() -> Vec<Vec<u8>> {
    let written = |makes_way: bool| -> std::io::Result<Vec<u8>> {
        let mut state = VolumeState::new(&StateFile::new()?)?;
        let inodes = (2..5).map(|number| KnownInode {
            number,
            parent: number - 1,
            name: b"name".to_vec(),
            is_directory: true,
            created: 0,
            is_unreported: false,
            times: 1,
            opens: 0,
        });
        for inode in inodes.clone() {
            state.put(&inode);
        }
        if makes_way {
            state.leave(inodes, false)?;
        }
        let mut bytes = Vec::new();
        File::from(state.share()?).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    [false, true].into_iter().flat_map(written).collect()
}

/// Returns seeds for [`messages`]: the number of descriptors, and the text.
#[must_use]
pub fn message_seeds() -> Vec<Vec<u8>> {
    let offer = Offer {
        path: PathBuf::from("/mnt/a"),
        device: (0, 77),
        kind: Kind::Volume { was_clean: true },
        negotiated: Negotiated { abi: 45, flags: 5 },
        volume: b"exfat 1024 512".to_vec(),
        identity: b"id".to_vec(),
    };
    let offered = |word: &[u8]| [&b"\x02"[..], &offer.encode(word)].concat();
    let offers = [FromSupervisor::TAKE, FromServer::KEEP].map(offered);
    let words = [
        &b"\x01thread"[..],
        b"\x01restart",
        b"\0staying\nwhy",
        b"\0go",
        b"\0leave",
    ];
    let outside = [
        &b"\0adopt 8 1 /mnt"[..],
        b"\0attach rw",
        b"\0call 1",
        b"\0lift 131072",
    ];
    let all = words.into_iter().chain(outside).map(<[u8]>::to_vec);
    all.chain(offers).collect()
}

fn serve<F: Filesystem + 'static>(adapter: F, ready: impl FnOnce(BorrowedFd<'_>), bytes: &[u8]) {
    let Ok((kernel, ours)) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    ) else {
        return;
    };
    let (&flags, bytes) = bytes.split_first().unwrap_or((&0, bytes));
    let offered = match flags & 1 {
        0 => InitFlags::all().bits(),
        _ => 0,
    };
    let negotiated = Negotiated {
        abi: if flags & 2 == 0 { 45 } else { 9 },
        flags: offered,
    };
    let sent = rustix::io::write(&kernel, &init_request(negotiated));
    assert!(sent.is_ok(), "{sent:?}");
    ready(ours.as_fd());
    let session = Session::from_fd(adapter, ours, SessionACL::All, Config::default());
    assert!(session.is_ok(), "{:?}", session.err());
    let Ok(session) = session else { return };
    let kernel = Kernel {
        socket: kernel,
        unique: 2,
        nodes: vec![1],
        forgotten: Vec::new(),
    };
    kernel.receive(2);
    thread::scope(move |scope| {
        // Dropped on a panic, so that the session ends.
        let mut kernel = kernel;
        let serving = threads::spawn_scoped(scope, "forerun-fuse", || session.run());
        let mut rest = bytes;
        for _ in 0..MOST {
            let Some(next) = kernel.send(rest) else { break };
            rest = next;
        }
        // The session reports an error if the connection ends without DESTROY.
        kernel.ask(opcode::DESTROY, 0, &[]);
        let ended = serving.map(ScopedJoinHandle::join);
        assert!(matches!(ended, Ok(Ok(Ok(())))), "the session failed");
    });
}

/// Sets the size field to the actual length of the data. `fuser` panics on a wrong size, which the
/// kernel never sends.
fn set_size(opcode: u8, request: &mut [u8]) {
    let (place, data) = match opcode {
        opcode::WRITE => (HEADER + 16, HEADER + 40),
        opcode::IOCTL => (HEADER + 24, HEADER + 32),
        opcode::SETXATTR => {
            let name = request.iter().skip(HEADER + 8).position(|&byte| byte == 0);
            (HEADER, HEADER + 9 + name.unwrap_or(0))
        }
        _ => return,
    };
    let size = u32::try_from(request.len().saturating_sub(data)).unwrap_or(0);
    if let Some(field) = request.get_mut(place..place + 4) {
        field.copy_from_slice(&size.to_ne_bytes());
    }
}

struct Kernel {
    socket: OwnedFd,
    unique: u64,
    nodes: Vec<u64>,
    /// Unique IDs of requests that are answered only if their arguments are invalid.
    forgotten: Vec<u64>,
}

impl Kernel {
    /// Sends the next request in `bytes`: opcode, node, length of the arguments, arguments. Returns
    /// the rest.
    fn send<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let &[opcode, node, low, high, ref rest @ ..] = bytes else {
            return None;
        };
        let len = usize::from(u16::from_le_bytes([low, high])) % 2048;
        let (arguments, rest) = rest.split_at(len.min(rest.len()));
        // The session itself sends INIT and DESTROY.
        if opcode & !RESENT != opcode::DESTROY {
            self.ask(opcode, node, arguments);
        }
        Some(rest)
    }

    fn ask(&mut self, opcode: u8, node: u8, arguments: &[u8]) {
        self.unique += 2;
        let again = if opcode & RESENT == 0 {
            0
        } else {
            UNIQUE_RESENT
        };
        let (opcode, unique) = (opcode & !RESENT, self.unique | again);
        let number = match node {
            0xF0.. => u64::from(node) << (node % 64),
            _ => {
                let at = usize::from(node) % self.nodes.len().max(1);
                self.nodes.get(at).copied().unwrap_or(1)
            }
        };
        let mut request = Vec::with_capacity(HEADER + arguments.len());
        let len = u32::try_from(HEADER + arguments.len()).unwrap_or(0);
        request.extend_from_slice(&len.to_ne_bytes());
        request.extend_from_slice(&u32::from(opcode).to_ne_bytes());
        request.extend_from_slice(&unique.to_ne_bytes());
        request.extend_from_slice(&number.to_ne_bytes());
        // User, group and process 0; nothing follows the arguments.
        request.resize(HEADER, 0);
        request.extend_from_slice(arguments);
        set_size(opcode, &mut request);
        let sent = rustix::io::write(&self.socket, &request);
        assert!(sent.is_ok(), "{sent:?}");
        if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            self.forgotten.push(unique);
            return;
        }
        let answer = self.receive(unique);
        let room = arguments.get(16..20).and_then(|size| size.try_into().ok());
        let room = u64::from(room.map_or(0, u32::from_ne_bytes));
        match opcode {
            opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
                assert!(
                    u64::try_from(answer.len()).is_ok_and(|len| len <= room),
                    "opcode {opcode}: too long an answer"
                );
            }
            opcode::LOOKUP | opcode::CREATE | opcode::MKDIR => {
                if let Some(number) = answer.first_chunk() {
                    self.nodes.push(u64::from_ne_bytes(*number));
                }
            }
            _ => {}
        }
    }

    fn receive(&self, unique: u64) -> Vec<u8> {
        loop {
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&ANSWER_TIMEOUT));
            assert_ne!(ready, Ok(0), "request {unique} is not answered");
            let mut answer = vec![0; LONGEST];
            let len = rustix::io::read(&self.socket, &mut answer).unwrap_or(0);
            answer.truncate(len);
            assert!(len >= ANSWER, "an answer of {len} bytes");
            let word = |at: usize| answer.get(at..).and_then(<[u8]>::first_chunk).copied();
            let said = word(0).map_or(0, u32::from_ne_bytes);
            assert_eq!(u64::from(said), u64_from(len), "the length of an answer");
            let error = word(4).map_or(0, i32::from_ne_bytes);
            let number = answer.get(8..16).and_then(|bytes| bytes.try_into().ok());
            match number.map_or(0, u64::from_ne_bytes) {
                // A notification, with its code in place of the error.
                0 => {}
                found if self.forgotten.contains(&found) => {}
                found if found == unique => {
                    assert!(error == 0 || ERRORS.contains(&error), "error {error}");
                    assert!(error == 0 || len == ANSWER, "an error with data");
                    return answer.split_off(ANSWER);
                }
                found => unreachable!("an answer to {found} instead of {unique}"),
            }
        }
    }
}
