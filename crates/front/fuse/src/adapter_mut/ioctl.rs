//! Filesystem ioctls: trim, label, and attributes of FAT.
//!
//! The kernel forwards ioctls of any process with an open file, so callers are checked here. The
//! kernel's own drivers require CAP_SYS_ADMIN, but a FUSE request has only the user ID.

use fuser::Errno;

use super::core::CoreMut;
use crate::attr::GET_FAT_ATTRIBUTES;
use crate::counts::Operation;

/// `FITRIM`: passes a range and a minimum length, returns the trimmed length.
const FITRIM: u32 = 0xC018_5879;
/// `FS_IOC_GETFSLABEL`: returns 256 bytes.
const GET_LABEL: u32 = 0x8100_9431;
/// `FS_IOC_SETFSLABEL`: passes 256 bytes.
const SET_LABEL: u32 = 0x4100_9432;
/// `FAT_IOCTL_SET_ATTRIBUTES`: a number of 32 bits in.
const SET_FAT_ATTRIBUTES: u32 = 0x4004_7211;
const LABEL: usize = 256;

/// The attribute of a directory.
const FAT_DIRECTORY: u32 = 0x10;

pub struct Ioctl {
    /// The calling user in the mount's user namespace.
    pub caller: u32,
    pub number: u64,
    pub command: u32,
    pub input: Vec<u8>,
}

pub fn ioctl(core: &CoreMut, asked: &Ioctl) -> Result<Vec<u8>, Errno> {
    let is_allowed = match asked.command {
        GET_LABEL => {
            let mut label = core.noted(Operation::Other, asked.number, core.fs().label())?;
            label.resize(LABEL, 0);
            return Ok(label);
        }
        GET_FAT_ATTRIBUTES => return fat_attributes(core, asked),
        SET_FAT_ATTRIBUTES => return set_fat_attributes(core, asked),
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

fn fat_attributes(core: &CoreMut, asked: &Ioctl) -> Result<Vec<u8>, Errno> {
    let known = core.fs().capabilities().fat_attributes;
    let known = known.ok_or(Errno::ENOTTY)?;
    let attributes = known.fat_attributes(core.node(asked.number));
    let attributes = core.noted(Operation::Other, asked.number, attributes)?;
    Ok(attributes.to_ne_bytes().to_vec())
}

/// Sets attributes as Linux does: the owner may, and the root directory has none.
fn set_fat_attributes(core: &CoreMut, asked: &Ioctl) -> Result<Vec<u8>, Errno> {
    if core.fs().capabilities().fat_attributes.is_none() {
        return Err(Errno::ENOTTY);
    }
    let node = core.node(asked.number);
    let owner = core
        .noted(Operation::Other, asked.number, core.attr(node))?
        .uid;
    if !may_administer(asked.caller, owner) {
        return Err(Errno::EPERM);
    }
    let Some(attributes) = asked.input.first_chunk().copied().map(u32::from_ne_bytes) else {
        return Err(Errno::EINVAL);
    };
    if node == core.fs().root() {
        // What `fatattr` sets without a change.
        return match attributes & !FAT_DIRECTORY {
            0 => Ok(Vec::new()),
            _ => Err(Errno::EINVAL),
        };
    }
    let set = core.with_room(|| core.fs().set_fat_attributes(node, attributes));
    core.changed(Operation::Other, asked.number, set)?;
    core.inode_changed(node);
    // The kernel has cached the permission to write.
    if let Some(stale) = core.stale.get() {
        stale.drop_attributes(asked.number);
    }
    Ok(Vec::new())
}

/// Returns whether a user may set the label and trim: only root and the mounting user.
const fn may_administer(caller: u32, mounted_by: u32) -> bool {
    caller == 0 || caller == mounted_by
}

/// Discards free space in a range. The argument is three 64-bit integers: start, length, minimum
/// length. The answer has the number of bytes discarded in place of the length.
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
    // Like the kernel's drivers, clamp a range that extends beyond the end.
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
