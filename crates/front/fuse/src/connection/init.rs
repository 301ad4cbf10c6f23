//! The INIT handshake for a connection on which another process has negotiated already.
//!
//! `fuser` begins every session by answering INIT, which the kernel sends once per connection. So
//! the session is created on a socket that contains an INIT request with exactly the negotiated
//! capabilities. Its answer is discarded. Then the connection replaces the socket under the same
//! descriptor number, before anything else is read.
//!
//! `fuser` owns the descriptor and only lends it, so this needs dup3(2) onto a borrowed descriptor.

use std::io;
use std::os::fd::OwnedFd;

use fuser::{Config, Filesystem, InitFlags, KernelConfig, Session, SessionACL};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

const INIT: u32 = 26;
const MAJOR: u32 = 7;
/// Bytes of a request header; INIT's body follows.
const HEADER: usize = 40;
const BODY: usize = 64;
/// Maximum readahead in the INIT request. Its answer is ignored.
const READAHEAD: u32 = 128 << 10;
/// Capabilities that `fuser` requests in addition to the adapter's.
const BY_FUSER: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_MAX_PAGES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    pub abi: u32,
    /// Capabilities of both sides, plus FUSE_HAS_RESEND, which is not requested.
    pub flags: u64,
}

impl Negotiated {
    /// Returns the result of requesting `wanted`.
    pub fn new(config: &KernelConfig, wanted: InitFlags) -> Self {
        let known = wanted | BY_FUSER | InitFlags::FUSE_HAS_RESEND;
        Self {
            abi: config.kernel_abi().1,
            flags: (config.capabilities() & known).bits(),
        }
    }

    pub const fn resends(self) -> bool {
        self.flags & InitFlags::FUSE_HAS_RESEND.bits() != 0
    }
}

/// Creates a session on a `connection` with the negotiated capabilities. The session has not read
/// any kernel request yet.
pub fn session<F: Filesystem>(
    adapter: F,
    connection: &OwnedFd,
    negotiated: Negotiated,
    config: Config,
) -> io::Result<Session<F>> {
    let (kernel, ours) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::write(&kernel, &request(negotiated))?;
    let session = Session::from_fd(adapter, ours, SessionACL::All, config)?;
    forerun_sys::descriptor::replace(&session, connection)?;
    Ok(session)
}

/// Builds an INIT request like the kernel's.
pub fn request(negotiated: Negotiated) -> Vec<u8> {
    let flags = negotiated.flags | InitFlags::FUSE_INIT_EXT.bits();
    let low = u32::try_from(flags & u64::from(u32::MAX)).unwrap_or(0);
    let high = u32::try_from(flags >> 32).unwrap_or(0);
    let len = u32::try_from(HEADER + BODY).unwrap_or(0);
    let mut bytes = Vec::with_capacity(HEADER + BODY);
    let mut put = |word: u32| bytes.extend_from_slice(&word.to_ne_bytes());
    put(len);
    put(INIT);
    // A nonzero unique ID; node, user, group and process are 0.
    [2, 0, 0, 0, 0, 0, 0, 0].into_iter().for_each(&mut put);
    for word in [MAJOR, negotiated.abi, READAHEAD, low, high] {
        put(word);
    }
    bytes.resize(HEADER + BODY, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Asks(Arc<Mutex<Option<(u32, u64)>>>);

    impl Filesystem for Asks {
        fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
            let told = (config.kernel_abi().1, config.capabilities().bits());
            *self.0.lock().unwrap() = Some(told);
            Ok(())
        }
    }

    #[test]
    fn a_session_without_a_kernel_and_then_on_another_file() {
        let told = Arc::default();
        let flags = InitFlags::FUSE_HAS_RESEND | InitFlags::FUSE_ASYNC_READ;
        let negotiated = Negotiated {
            abi: 41,
            flags: flags.bits(),
        };
        let mut file = File::from(
            rustix::fs::memfd_create("connection", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        let connection = file.try_clone().unwrap().into();
        let adapter = Asks(Arc::clone(&told));
        let session = session(adapter, &connection, negotiated, Config::default()).unwrap();
        assert_eq!(*told.lock().unwrap(), Some((41, flags.bits())));
        // The answer to INIT was discarded; later answers are not.
        assert_eq!(file.metadata().unwrap().len(), 0);
        session.notifier().poll(fuser::PollHandle(1)).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 24);
        let flags = rustix::io::fcntl_getfd(session.as_fd()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
