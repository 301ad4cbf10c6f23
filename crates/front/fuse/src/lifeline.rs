//! A pipe that ends when this process is killed, even if one of its threads cannot exit.
//!
//! A thread that stores pages may wait in the kernel for the answer to a request, and keeps the
//! process's files open meanwhile. Nothing else then shows that the process is dead. So only an
//! idle thread with a separate descriptor table holds the pipe's write end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::apart::hold;

/// Starts the thread. Returns the read end, which becomes readable when the process is dead. Must
/// be called inside the sandbox, because earlier threads are not confined.
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
