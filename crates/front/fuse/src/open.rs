//! Answers OPEN for images whose files have separate data objects.

use std::io;
use std::os::fd::AsFd;

use fuser::{Errno, FileHandle, FopenFlags, ReplyOpen, RequestId};

use crate::backing::Way;
use crate::connection::RESENT;
use crate::core::Core;
use crate::counts::Operation;
use crate::errno::errno;

/// Opens the data outside the image, and passes it to the kernel if the kernel accepts it.
pub fn open(core: &Core, request: RequestId, number: u64, reply: ReplyOpen) {
    let opened = core.reader.open(core.node(number));
    if let Err(error) = core.noted(Operation::Open, number, opened) {
        return reply.error(errno(&error));
    }
    // Unique IDs are never reused on a connection, by whichever server. A resent OPEN gets the same
    // handle.
    let handle = request.0 & !RESENT;
    let find = || core.reader.fs().backing(core.node(number));
    match core.backings.way(find, (number, handle), &reply) {
        Ok(Way::Kernel(backing)) => {
            reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing);
            core.reader.opened_outside(core.node(number));
        }
        Ok(Way::Earlier(id, connection)) => {
            match answer(&connection, request, handle, id) {
                // Dropping the reply would send a second answer, EIO.
                Ok(()) => {
                    std::mem::forget(reply);
                    core.reader.opened_outside(core.node(number));
                }
                Err(error) => {
                    tracing::debug!("answering an OPEN: {error}");
                    reply.error(Errno::EIO);
                }
            }
        }
        Ok(Way::Here) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
        Err(error) => {
            let error = core.noted(Operation::Open, number, Err::<(), _>(error));
            reply.error(error.map_or_else(|error| errno(&error), |()| Errno::EIO));
        }
    }
}

/// Answers OPEN with the file registered under `id`, as `fuser` does for its own registrations.
fn answer(connection: impl AsFd, request: RequestId, handle: u64, id: u32) -> io::Result<()> {
    let len: u32 = 32;
    let flags = FopenFlags::FOPEN_PASSTHROUGH.bits();
    let mut message = [len, 0].map(u32::to_ne_bytes).concat();
    message.extend_from_slice(&request.0.to_ne_bytes());
    message.extend_from_slice(&handle.to_ne_bytes());
    message.extend_from_slice([flags, id].map(u32::to_ne_bytes).as_flattened());
    rustix::io::write(connection, &message)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_bytes_of_the_protocol() {
        let (kernel, server) = std::os::unix::net::UnixStream::pair().unwrap();
        answer(&server, RequestId(RESENT | 6), 6, 3).unwrap();
        let mut bytes = [0; 40];
        let count = io::Read::read(&mut &kernel, &mut bytes).unwrap();
        let words = [32, 0, 6, 1 << 31, 6, 0, 1 << 7, 3].map(u32::to_le_bytes);
        assert_eq!(bytes[..count], *words.as_flattened());
    }
}
