//! The ioctls of filesystems: trim, and the label.

use forerun_vfs::{Error, Result};

use super::core::CoreMut;

/// `FITRIM`: a range and a least length in, what was trimmed out.
const FITRIM: u32 = 0xC018_5879;
/// `FS_IOC_GETFSLABEL`: 256 bytes out.
const GET_LABEL: u32 = 0x8100_9431;
/// `FS_IOC_SETFSLABEL`: 256 bytes in.
const SET_LABEL: u32 = 0x4100_9432;
/// Bytes of a label, with the NUL that ends it.
const LABEL: usize = 256;

/// Does what is asked; nothing where it is something else. Gives the bytes that go back.
pub fn ioctl(core: &CoreMut, command: u32, input: &[u8]) -> Option<Result<Vec<u8>>> {
    match command {
        FITRIM => Some(trim(core, input)),
        GET_LABEL => {
            let mut label = core.fs().volume().label;
            label.resize(LABEL, 0);
            Some(Ok(label))
        }
        SET_LABEL => {
            let label = input.split(|byte| *byte == 0).next().unwrap_or_default();
            Some(core.fs().set_label(label).map(|()| Vec::new()))
        }
        _ => None,
    }
}

/// Three numbers of 64 bits: start, length, least length. The second is answered with what was
/// trimmed.
fn trim(core: &CoreMut, input: &[u8]) -> Result<Vec<u8>> {
    let mut numbers = input.chunks_exact(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        u64::from_ne_bytes(bytes)
    });
    let (Some(start), Some(len), Some(min_len)) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return Err(Error::Unsupported("FITRIM without its argument".into()));
    };
    let trimmed = core.fs().trim(start..start.saturating_add(len), min_len)?;
    let answer = [start, trimmed, min_len].map(u64::to_ne_bytes);
    Ok(answer.concat())
}
