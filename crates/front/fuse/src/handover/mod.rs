//! A live mount changes hands: the process that serves it ends, another goes on, and programs that
//! use the mount notice nothing but a pause.
//!
//! The connection is a descriptor of `/dev/fuse`, and a descriptor can be passed over a socket. What
//! the kernel keeps of an image (names, attributes, data, the node of each inode number) stays true:
//! a node's number follows from its place in the image, and the process knows of no open file. So
//! a new process needs the descriptor, what was agreed when the mount began, and the same image.
//!
//! Three processes take part. The **supervisor** ([`Kept`]) holds the connection and serves nothing, so it
//! parses nothing and hardly dies. The **server** answers the requests; the supervisor has started it. When
//! it ends without saying that it is done, or is asked to make way, the supervisor starts a **successor**,
//! offers it the mount, and has the kernel resend the requests that the old server had taken and not
//! answered (FUSE_NOTIFY_RESEND, Linux 6.9). Without a kernel that can do so no mount is kept.
//!
//! The supervisor has a [`Channel`](crate::Channel) to each of the others; [`FromServer`] and [`FromSupervisor`] are the
//! messages. A channel ends when its process ends, so no message is needed for that.
//!
//! A volume that is mounted for writing has state in its server. The facts that the kernel relies on
//! are written to a [state table](crate::state_table), which the supervisor holds as well. The successor opens the
//! volume only when the old server has ended, because that has its lock.
//!
//! Files that the kernel reads by itself are registered with the connection. Their numbers are recorded
//! in the same way, and the successor continues with them.
//!
//! Not handed over while their server lives: volumes with open files that have no name.

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
