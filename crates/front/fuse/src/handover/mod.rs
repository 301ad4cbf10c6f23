//! Hands over a live mount to another process; programs that use it notice only a pause.
//!
//! The connection is a descriptor of `/dev/fuse`, which can be sent over a socket. Everything that
//! the kernel caches for an image (names, attributes, data, inode numbers) stays valid: a node's
//! number follows from its offset in the image, and the server keeps no state of open files. So a
//! new process needs only the descriptor, the negotiated capabilities, and the same image.
//!
//! Three processes take part. The **supervisor** ([`Kept`]) holds the connection and serves
//! nothing; it parses nothing and so rarely dies. The **server**, started by the supervisor,
//! answers requests. If it ends unexpectedly or is asked to make way, the supervisor starts a
//! **successor**, offers it the mount, and makes the kernel resend the requests that the old server
//! had taken but not answered (FUSE_NOTIFY_RESEND, Linux 6.9). Mounts are not kept on kernels
//! without this.
//!
//! The supervisor has a [`Channel`](crate::Channel) to each of the others; the messages are
//! [`FromServer`] and [`FromSupervisor`]. A channel ends with its process, so no message is needed
//! for that.
//!
//! The server of a writable volume has state. The facts that the kernel relies on are written to a
//! [state table](crate::state_table), which the supervisor holds too. The successor opens the
//! volume only after the old server has ended and released its lock.
//!
//! Files that the kernel reads directly are registered with the connection. Their registration
//! numbers are recorded in the same way, and the successor continues to use them.
//!
//! A volume with open files that have no name is not handed over while its server lives.

mod inherited;
mod kept;
mod leave;
mod message;

pub use inherited::{Inherited, Turn};
pub use kept::Kept;
pub use leave::Giver;
#[cfg(feature = "fuzzing")]
pub use message::Kind;
pub use message::{FromServer, FromSupervisor, Offer};
