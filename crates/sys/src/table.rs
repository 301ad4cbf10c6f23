//! A table of descriptors for one thread: unshare(2) with `CLONE_FILES`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use crate::checked;
use crate::descriptor::duplicate;

/// Gives the calling thread a table that holds only a duplicate of `kept`, and returns the
/// duplicate.
///
/// From then on, descriptors of other threads have no meaning in this thread, and the descriptors
/// that it opens have none in others. So this thread must neither use nor drop a descriptor that it
/// had before: another thread must drop `kept`.
///
/// # Errors
/// The errors of unshare(2), of fcntl(2) and of reading `/proc`.
pub fn leave(kept: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the table is a copy, in which each number refers to the same open file as before.
    checked(unsafe { libc::unshare(libc::CLONE_FILES) })?;
    let duplicate = duplicate(kept.as_fd().as_raw_fd())?;
    for number in numbers()? {
        if number != duplicate.as_raw_fd() {
            // SAFETY: only other threads own the numbers, and the descriptors stay open in their
            // table. The descriptor of the listing itself is closed already.
            unsafe { libc::close(number) };
        }
    }
    Ok(duplicate)
}

fn numbers() -> io::Result<Vec<RawFd>> {
    let listed = fs::read_dir("/proc/thread-self/fd")?;
    let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    #[test]
    fn the_thread_holds_the_kept_descriptor_only_and_others_keep_theirs() {
        let (mut here, kept) = UnixStream::pair().unwrap();
        let (mut other, held) = UnixStream::pair().unwrap();
        let kept = Arc::new(kept);
        let inherited = Arc::clone(&kept);
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let own = UnixStream::from(leave(&*inherited).unwrap());
            drop(inherited);
            tell.send(numbers().unwrap().len()).unwrap();
            (&own).write_all(b"text").unwrap();
            let _dropped = ended.recv();
        });
        // The listing itself is open while it is read.
        assert_eq!(told.recv().unwrap(), 2);
        drop((kept, held));
        // If the thread still held the other end, this read would block.
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        let mut text = [0; 4];
        here.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"text");
        drop(end);
        thread.join().unwrap();
        assert_eq!(here.read(&mut [0]).unwrap(), 0);
    }
}
