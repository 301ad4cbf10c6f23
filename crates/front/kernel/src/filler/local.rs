//! Fetching all metadata of an image into the cache before the kernel's driver sees it.
//!
//! The driver reads metadata through the page cache, and kernels before 7.1 raise no events for
//! that: they would read zeros where metadata is missing. So our own driver reads all of it first: the
//! ranges that it can name in large steps, and then all that a walk over the whole tree reads, which
//! is everything the kernel's driver may ask for.

use std::io;
use std::ops::ControlFlow;

use forerun::remote::RemoteImage;
use forerun::vfs::{FileType, Walk};
use forerun::{Image, ReadAt};

use crate::error::Error;
use crate::prefetch;

/// Longest piece that is read at once.
const PIECE: u64 = 1 << 20;

/// Fetches all metadata. Returns the number of bytes in the ranges that the driver can name.
pub fn fetch_metadata(image: &Image, remote: &RemoteImage) -> Result<u64, Error> {
    if remote.is_verified_whole() {
        return Ok(0);
    }
    let fs = image.reader().fs();
    for range in prefetch::ranges(fs) {
        remote.will_need(range);
    }
    let mut read = 0_u64;
    let mut buffer = Vec::new();
    for range in fs.metadata_layout().ranges() {
        let end = range.end.min(remote.len());
        let mut at = range.start;
        while at < end {
            let len = (end - at).min(PIECE);
            fetch(remote, at, len, &mut buffer)
                .map_err(|error| Error::on_demand("fetching the metadata", error))?;
            at += len;
            read = read.saturating_add(len);
        }
    }
    walk(image).map_err(|source| Error::Metadata { source })?;
    Ok(read)
}

fn fetch(remote: &RemoteImage, at: u64, len: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(usize::try_from(len).map_err(io::Error::other)?, 0);
    remote.read_exact_at(at, buffer)
}

/// Reads everything that is not file data.
fn walk(image: &Image) -> Result<(), forerun::vfs::Error> {
    let fs = image.reader().fs();
    for entry in Walk::new(fs, fs.root(), image.reader().limits()) {
        let entry = entry?;
        let metadata = entry.metadata?;
        fs.xattrs(entry.node, &mut |_, _| ())?;
        match metadata.kind {
            FileType::Regular => {
                fs.map(entry.node, 0..metadata.size, &mut |_| {
                    ControlFlow::Continue(())
                })?;
            }
            FileType::Symlink => drop(fs.read_link(entry.node)?),
            _ => {}
        }
    }
    Ok(())
}
