//! A live mount changes hands: the process that serves it ends, another goes on, and whoever uses
//! the mount notices nothing.
//!
//! The connection is a descriptor of `/dev/fuse`, and a descriptor can be passed over a socket. What
//! the kernel keeps of an image (names, attributes, data, the node of each inode number) stays true:
//! a node's number follows from its place in the image, and no open file is known to the process. So
//! the new process needs the descriptor, what was agreed when the mount began, and the same image.
//!
//! The old process serves until the new one is ready, and goes on if it never is. Then it ends, with
//! whatever requests it has taken and not answered; the new one has the kernel send these again
//! (FUSE_NOTIFY_RESEND, Linux 6.9). Without a kernel that can do so nothing is handed over.
//!
//! Messages on the socket, which keeps their borders: the old process sends an [`Offer`] with the
//! descriptors, the new one [`READY`], the old one [`GO`] (or [`NO`]), and then the socket ends with
//! the old process. If that dies early, the new one takes over as well: nobody else is there.
//!
//! Not handed over: volumes that are mounted for writing, whose state is in memory, and mounts with
//! open files that the kernel reads by itself, whose registrations cannot be taken over.

mod error;
mod give;
mod init;
mod message;
mod take;

pub use error::HandoverError;
pub use give::{Giver, Offered};
pub use init::Negotiated;
use message::Offer;
pub use take::{Inherited, take_over};

/// What the new process says when nothing is left to do but to take over.
const READY: &[u8] = b"ready";
/// What the old process says as the last thing it does.
const GO: &[u8] = b"go";
/// What it says when it goes on serving.
const NO: &[u8] = b"no";
