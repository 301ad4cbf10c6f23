//! A pipe that ends when this process was killed, though a thread of it cannot end.
//!
//! A thread that stores pages may wait in the kernel for the answer to a request. The files of the process stay open as long
//! as it does, and nothing else says that the process is dead. So the writing end of the pipe is in the descriptor table
//! of a thread that does nothing, and in no other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::apart::hold;

/// Starts the thread, and returns the end of the pipe that is readable once the process is dead. The caller has entered
/// its sandbox: earlier threads are outside.
///
/// # Errors
/// The errors of threads and pipes.
pub fn lifeline() -> io::Result<OwnedFd> {
    let (ours, theirs) = io::pipe()?;
    hold(theirs.as_fd(), "forerun-alive", |_until_the_end| {
        loop {
            std::thread::park();
        }
    })?;
    Ok(ours.into())
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn the_pipe_lasts_as_long_as_the_process() {
        let pipe = lifeline().unwrap();
        let at_once = Timespec::default();
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&at_once)).unwrap(), 0);
    }
}
