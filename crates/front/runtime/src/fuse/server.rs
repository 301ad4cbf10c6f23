//! A small FUSE server loop for the AppImage runtime.
//!
//! forerun's FUSE library with its dependencies would be larger than the whole runtime. Each thread
//! takes a request, answers it, and takes the next one. The image is read-only and no state is kept
//! between requests, so FORGET and RELEASE do nothing and the kernel may cache everything
//! indefinitely.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use forerun_vfs::{FileSystem, Metadata, NodeId, is_acl};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::directory::Listing;
use super::errno::errno;
use super::numbers::Numbers;
use super::protocol::{
    AttrOut, EntryOut, InHeader, InitIn, InitOut, MAJOR, MINOR, OutHeader, ReadIn, StatfsOut,
    XattrIn, XattrOut, flag, op,
};
use crate::contents::Contents;

/// Buffer size for requests. They contain names but no data; the kernel demands at least this.
const REQUEST: usize = 64 << 10;
const MAX_PAGES: u16 = 256;
const MAX_ANSWER: u32 = 1 << 20;
const READAHEAD: u32 = 1 << 20;
/// Validity of names and attributes in seconds: images do not change.
const FOREVER: u64 = 1 << 30;
/// Maximum server threads. More would use more memory for decoded blocks than users expect of a
/// runtime.
const MAX_THREADS: usize = 4;
/// Maximum length of a list of extended attributes in the kernel.
const MAX_XATTR: usize = 64 << 10;

struct Server {
    connection: OwnedFd,
    contents: Contents,
    numbers: Numbers,
    has_xattrs: bool,
}

/// Bytes, an errno, or `None` if the kernel expects no answer.
type Answer = Option<Result<Vec<u8>, Errno>>;

/// Serves the connection until it is unmounted. `uid` and `gid` own all files.
pub fn serve(connection: OwnedFd, contents: Contents, uid: u32, gid: u32) {
    let volume = contents.driver().volume();
    let numbers = Numbers {
        root: contents.driver().root(),
        uid,
        gid,
        block_size: volume.block_size,
    };
    let has_xattrs = volume.has_xattrs;
    let server = Arc::new(Server {
        connection,
        contents,
        numbers,
        has_xattrs,
    });
    // INIT is the first request; the kernel sends no other before it is answered.
    if !server.serve_one(&mut vec![0; REQUEST]) {
        return;
    }
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
    for _ in 1..threads {
        let server = Arc::clone(&server);
        // If a thread cannot be started, serving is only slower.
        let _handle = thread::Builder::new().spawn(move || server.run());
    }
    server.run();
}

impl Server {
    fn run(&self) {
        let mut buffer = vec![0; REQUEST];
        while self.serve_one(&mut buffer) {}
    }

    /// Takes and answers one request. Returns false when the connection has ended.
    fn serve_one(&self, buffer: &mut [u8]) -> bool {
        let len = match rustix::io::read(&self.connection, &mut *buffer) {
            Ok(len) => len,
            // The request was interrupted and withdrawn; take the next one.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => return true,
            Err(_) => return false,
        };
        let request = &buffer[..len];
        let Ok((header, body)) = InHeader::read_from_prefix(request) else {
            return false;
        };
        match self.answer(&header, body) {
            None => true,
            Some(answer) => send(self.connection.as_fd(), header.unique, answer),
        }
    }

    fn answer(&self, header: &InHeader, body: &[u8]) -> Answer {
        let answer = match header.opcode {
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return None,
            op::INIT => init(body),
            op::DESTROY | op::RELEASE | op::RELEASEDIR => Ok(Vec::new()),
            op::OPEN | op::OPENDIR => {
                // ENOSYS tells the kernel to open files without asking the server.
                Err(Errno::NOSYS)
            }
            op::STATFS => Ok(self.statfs()),
            _ => match self.numbers.node(header.nodeid) {
                Some(node) => self.of_node(header.opcode, node, body),
                None => Err(Errno::STALE),
            },
        };
        Some(answer)
    }

    fn of_node(&self, opcode: u32, node: NodeId, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let driver = self.contents.driver();
        match opcode {
            op::LOOKUP => self.lookup(node, name(body)?),
            op::GETATTR => {
                let metadata = driver.metadata(node).map_err(|error| errno(&error))?;
                Ok(bytes(&AttrOut {
                    valid: FOREVER,
                    attr: self.numbers.attr(self.numbers.number(node), &metadata),
                    ..AttrOut::default()
                }))
            }
            op::READLINK => driver.read_link(node).map_err(|error| errno(&error)),
            op::READ => {
                let asked: ReadIn = structure(body)?;
                let size = asked.size.min(MAX_ANSWER);
                let mut out = Vec::new();
                let read = self.contents.read(node, asked.offset, size, &mut out);
                read.map(|()| out).map_err(|error| errno(&error))
            }
            op::READDIR | op::READDIRPLUS => {
                let asked: ReadIn = structure(body)?;
                let mut out = Vec::new();
                let listing = Listing {
                    contents: &self.contents,
                    numbers: self.numbers,
                    plus: opcode == op::READDIRPLUS,
                    room: asked.size.min(MAX_ANSWER),
                };
                match listing.list(node, asked.offset, &mut out) {
                    // Return the entries read so far; the next request reports the damage.
                    Err(_) if !out.is_empty() => Ok(out),
                    listed => listed.map(|()| out).map_err(|error| errno(&error)),
                }
            }
            op::GETXATTR | op::LISTXATTR if !self.has_xattrs => Err(Errno::NOSYS),
            op::GETXATTR | op::LISTXATTR => {
                let asked: XattrIn = structure(body)?;
                let wanted = match opcode {
                    op::GETXATTR => {
                        Some(name(body.get(size_of::<XattrIn>()..).unwrap_or_default())?)
                    }
                    _ => None,
                };
                self.xattr(node, wanted, asked.size)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let driver = self.contents.driver();
        let found = driver.lookup(dir, name).map_err(|error| errno(&error))?;
        let Some(node) = found else {
            // Node ID 0 lets the kernel cache that the name does not exist.
            return Ok(bytes(&EntryOut {
                entry_valid: FOREVER,
                ..EntryOut::default()
            }));
        };
        let metadata = driver.metadata(node).map_err(|error| errno(&error))?;
        Ok(bytes(&entry(&self.numbers, node, &metadata)))
    }

    /// Returns the value of an attribute, or all names if `wanted` is `None`.
    fn xattr(&self, node: NodeId, wanted: Option<&[u8]>, size: u32) -> Result<Vec<u8>, Errno> {
        // SquashFS has no ACLs. EOPNOTSUPP makes `ls -l` ask once instead of once per file.
        if wanted.is_some_and(is_acl) {
            return Err(Errno::OPNOTSUPP);
        }
        let mut found: Option<Vec<u8>> = None;
        let visited = self.contents.driver().xattrs(node, &mut |name, value| {
            match wanted {
                Some(wanted) if wanted == name => found = Some(value.to_vec()),
                Some(_) => {}
                None => {
                    let names = found.get_or_insert_default();
                    if names.len() + name.len() < MAX_XATTR {
                        names.extend_from_slice(name);
                        names.push(0);
                    }
                }
            };
        });
        visited.map_err(|error| errno(&error))?;
        let value = match (found, wanted) {
            (Some(value), _) => value,
            (None, None) => Vec::new(),
            (None, Some(_)) => return Err(Errno::NODATA),
        };
        let len = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
        match size {
            0 => Ok(bytes(&XattrOut {
                size: len,
                padding: 0,
            })),
            _ if len > size => Err(Errno::RANGE),
            _ => Ok(value),
        }
    }

    fn statfs(&self) -> Vec<u8> {
        let volume = self.contents.driver().volume();
        let block = u64::from(volume.block_size.max(1));
        bytes(&StatfsOut {
            blocks: volume.image_len.div_ceil(block),
            files: volume.inodes.unwrap_or(0),
            bsize: volume.block_size,
            frsize: volume.block_size,
            namelen: volume.name_max,
            ..StatfsOut::default()
        })
    }
}

fn init(body: &[u8]) -> Result<Vec<u8>, Errno> {
    let asked: InitIn = structure(body)?;
    if asked.major != MAJOR || asked.minor < MINOR {
        // Linux before 5.4 uses shorter structures.
        return Err(Errno::PROTO);
    }
    let wanted = flag::ASYNC_READ
        | flag::DO_READDIRPLUS
        | flag::READDIRPLUS_AUTO
        | flag::NO_OPEN_SUPPORT
        | flag::PARALLEL_DIROPS
        | flag::MAX_PAGES
        | flag::CACHE_SYMLINKS
        | flag::NO_OPENDIR_SUPPORT;
    Ok(bytes(&InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: asked.max_readahead.min(READAHEAD),
        flags: asked.flags & wanted,
        max_background: 16,
        congestion_threshold: 12,
        max_write: 4096,
        time_gran: 1,
        max_pages: MAX_PAGES,
        ..InitOut::default()
    }))
}

/// Returns the answer to LOOKUP for `node`.
pub fn entry(numbers: &Numbers, node: NodeId, metadata: &Metadata) -> EntryOut {
    let number = numbers.number(node);
    EntryOut {
        nodeid: number,
        entry_valid: FOREVER,
        attr_valid: FOREVER,
        attr: numbers.attr(number, metadata),
        ..EntryOut::default()
    }
}

/// Sends an answer. Returns false when the connection has ended.
fn send(connection: BorrowedFd<'_>, unique: u64, answer: Result<Vec<u8>, Errno>) -> bool {
    let (body, error) = match answer {
        Ok(body) => (body, 0),
        Err(errno) => (Vec::new(), -errno.raw_os_error()),
    };
    let Ok(len) = u32::try_from(size_of::<OutHeader>() + body.len()) else {
        return send(connection, unique, Err(Errno::IO));
    };
    let header = OutHeader { len, error, unique };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(&body)];
    match rustix::io::writev(connection, &parts) {
        // ENOENT: the request was interrupted and needs no answer.
        Ok(_) | Err(Errno::NOENT | Errno::INTR) => true,
        Err(Errno::NODEV) => false,
        Err(_) => true,
    }
}

fn structure<T: FromBytes + KnownLayout + Immutable>(body: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(body)
        .map(|(value, _)| value)
        .map_err(|_| Errno::INVAL)
}

/// Returns the NUL-terminated name at the start of `body`.
fn name(body: &[u8]) -> Result<&[u8], Errno> {
    let end = body.iter().position(|&byte| byte == 0);
    end.and_then(|end| body.get(..end)).ok_or(Errno::INVAL)
}

fn bytes(value: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    value.as_bytes().to_vec()
}
