//! The ioctls of filesystems: trim, and the label.
//!
//! The kernel passes ioctls on from every process with an open file, so callers are checked here. The
//! kernel's own drivers ask for CAP_SYS_ADMIN; a FUSE request has the user but no capabilities.

use fuser::Errno;

use super::core::CoreMut;
use crate::counts::Operation;

/// `FITRIM`: a range and a least length in, the trimmed length out.
const FITRIM: u32 = 0xC018_5879;
/// `FS_IOC_GETFSLABEL`: 256 bytes out.
const GET_LABEL: u32 = 0x8100_9431;
/// `FS_IOC_SETFSLABEL`: 256 bytes in.
const SET_LABEL: u32 = 0x4100_9432;
/// Bytes of a label, with the NUL that ends it.
const LABEL: usize = 256;

/// An ioctl on a file or directory of a volume.
pub struct Ioctl {
    /// The calling user, in the user namespace of the mount.
    pub caller: u32,
    pub number: u64,
    /// Number of the ioctl.
    pub command: u32,
    /// The bytes that the caller passes.
    pub input: Vec<u8>,
}

/// Carries out an ioctl, and returns the bytes for the caller.
pub fn ioctl(core: &CoreMut, asked: &Ioctl) -> Result<Vec<u8>, Errno> {
    let is_allowed = match asked.command {
        GET_LABEL => {
            let mut label = core.noted(Operation::Other, asked.number, core.fs().label())?;
            label.resize(LABEL, 0);
            return Ok(label);
        }
        FITRIM | SET_LABEL => may_administer(asked.caller, rustix::process::getuid().as_raw()),
        _ => return Err(Errno::ENOTTY),
    };
    if !is_allowed {
        return Err(Errno::EPERM);
    }
    if asked.command == FITRIM {
        return trim(core, asked);
    }
    let label = asked.input.split(|byte| *byte == 0).next();
    let named = core.with_room(|| core.fs().set_label(label.unwrap_or_default()));
    core.changed(Operation::Other, asked.number, named)?;
    Ok(Vec::new())
}

/// Returns whether a user may change the label and discard free space: root and the mounting user may.
const fn may_administer(caller: u32, mounted_by: u32) -> bool {
    caller == 0 || caller == mounted_by
}

/// Discards free space in a range. The argument is three numbers of 64 bits: start, length, least
/// length. The answer is the same with the bytes discarded in place of the length.
fn trim(core: &CoreMut, asked: &Ioctl) -> Result<Vec<u8>, Errno> {
    let mut numbers = asked.input.chunks_exact(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        u64::from_ne_bytes(bytes)
    });
    let (Some(start), Some(len), Some(min_len)) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return Err(Errno::EINVAL);
    };
    let space = core.noted(Operation::Other, asked.number, core.fs().space())?;
    let (block, size) = (u64::from(space.block_size), core.info.image_len);
    // As in the kernel's drivers, a range that extends beyond the end is cut there.
    if start >= size || len < block || min_len > size {
        return Err(Errno::EINVAL);
    }
    let trimmed = core.fs().trim(start..start.saturating_add(len), min_len);
    let trimmed = core.changed(Operation::Other, asked.number, trimmed)?;
    Ok([start, trimmed, min_len].map(u64::to_ne_bytes).concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_mounting_user_administer() {
        for (caller, mounted_by, expected) in [
            (0, 0, true),
            (0, 1000, true),
            (1000, 1000, true),
            (1001, 1000, false),
            (65534, 0, false),
            (u32::MAX, 0, false),
        ] {
            assert_eq!(may_administer(caller, mounted_by), expected);
        }
    }
}
