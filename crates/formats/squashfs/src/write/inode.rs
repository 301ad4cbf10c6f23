//! Encodes inodes: in the basic form if it can hold all fields, otherwise in the extended form.

use forerun_build::BuildError;
use forerun_vfs::{Device, Timestamp};
use zerocopy::{Immutable, IntoBytes};

use super::cannot;
use super::data::StoredBlocks;
use super::dir::Listing;
use crate::ondisk::{
    BasicDir, BasicFile, DeviceNode, ExtendedDir, ExtendedFile, InodeHeader, Ipc, NONE_32, Symlink,
    kind,
};

pub struct Common {
    pub mode: u16,
    /// Index of the owner in the id table.
    pub uid: u16,
    pub gid: u16,
    pub mtime: Timestamp,
    pub number: u32,
    pub nlink: u32,
    /// Number of the xattr set.
    pub xattr: Option<u32>,
}

pub enum Kind<'a> {
    Dir {
        listing: &'a Listing,
        parent: u32,
    },
    File {
        len: u64,
        body: Option<&'a StoredBlocks>,
        fragment: Option<(u32, u32)>,
    },
    Symlink(&'a [u8]),
    /// A device and its basic type.
    Device(u16, Device),
    /// A pipe or socket, as its basic type.
    Ipc(u16),
}

impl Kind<'_> {
    pub const fn basic_type(&self) -> u16 {
        match self {
            Self::Dir { .. } => kind::DIR,
            Self::File { .. } => kind::REG,
            Self::Symlink(_) => kind::SYMLINK,
            Self::Device(kind, _) | Self::Ipc(kind) => *kind,
        }
    }
}

pub fn encode(common: &Common, kind: &Kind<'_>) -> Result<Vec<u8>, BuildError> {
    let mut out = Bytes(Vec::with_capacity(64));
    match kind {
        Kind::Dir { listing, parent } => dir(&mut out, common, listing, *parent),
        Kind::File {
            len,
            body,
            fragment,
        } => {
            let none = StoredBlocks::default();
            file(&mut out, common, *len, body.unwrap_or(&none), *fragment);
        }
        Kind::Symlink(target) => {
            out.header(common, kind::SYMLINK, common.xattr.is_some());
            let size = u32::try_from(target.len())
                .map_err(|_| cannot(format!("a link of {} bytes", target.len())))?;
            out.push(&Symlink {
                nlink: common.nlink.into(),
                symlink_size: size.into(),
            });
            out.0.extend_from_slice(target);
            out.xattr(common);
        }
        Kind::Device(kind, device) => {
            out.header(common, *kind, common.xattr.is_some());
            out.push(&DeviceNode {
                nlink: common.nlink.into(),
                rdev: rdev(*device)?.into(),
            });
            out.xattr(common);
        }
        Kind::Ipc(kind) => {
            out.header(common, *kind, common.xattr.is_some());
            out.push(&Ipc {
                nlink: common.nlink.into(),
            });
            out.xattr(common);
        }
    }
    Ok(out.0)
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn push(&mut self, raw: &(impl IntoBytes + Immutable)) {
        self.0.extend_from_slice(raw.as_bytes());
    }

    fn header(&mut self, common: &Common, basic: u16, extended: bool) {
        let inode_type = basic + if extended { kind::EXTENDED } else { 0 };
        self.push(&InodeHeader {
            inode_type: inode_type.into(),
            mode: (common.mode & 0o7777).into(),
            uid: common.uid.into(),
            guid: common.gid.into(),
            mtime: seconds(common.mtime).into(),
            inode_number: common.number.into(),
        });
    }

    /// Appends the xattr index that ends the extended forms of small inodes.
    fn xattr(&mut self, common: &Common) {
        if let Some(xattr) = common.xattr {
            self.0.extend_from_slice(&xattr.to_le_bytes());
        }
    }
}

/// Returns whole seconds. Times outside of 1970 to 2106 become the nearest one inside.
pub fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX)
}

fn dir(out: &mut Bytes, common: &Common, listing: &Listing, parent: u32) {
    let size = listing.len + 3;
    let short = u16::try_from(size).ok();
    let short = short.filter(|_| listing.index_count == 0 && common.xattr.is_none());
    out.header(common, kind::DIR, short.is_none());
    match short {
        Some(size) => out.push(&BasicDir {
            start_block: listing.place.block.into(),
            nlink: common.nlink.into(),
            file_size: size.into(),
            offset: listing.place.offset.into(),
            parent_inode: parent.into(),
        }),
        None => {
            out.push(&ExtendedDir {
                nlink: common.nlink.into(),
                file_size: size.into(),
                start_block: listing.place.block.into(),
                parent_inode: parent.into(),
                i_count: listing.index_count.into(),
                offset: listing.place.offset.into(),
                xattr: common.xattr.unwrap_or(NONE_32).into(),
            });
            out.0.extend_from_slice(&listing.indexes);
        }
    }
}

fn file(
    out: &mut Bytes,
    common: &Common,
    len: u64,
    body: &StoredBlocks,
    fragment: Option<(u32, u32)>,
) {
    let (fragment, offset) = fragment.unwrap_or((NONE_32, 0));
    let basic = common.xattr.is_none() && common.nlink == 1 && body.sparse == 0;
    let words = (u32::try_from(len), u32::try_from(body.start));
    if let (true, (Ok(file_size), Ok(start_block))) = (basic, words) {
        out.header(common, kind::REG, false);
        out.push(&BasicFile {
            start_block: start_block.into(),
            fragment: fragment.into(),
            offset: offset.into(),
            file_size: file_size.into(),
        });
    } else {
        out.header(common, kind::REG, true);
        out.push(&ExtendedFile {
            start_block: body.start.into(),
            file_size: len.into(),
            sparse: body.sparse.into(),
            nlink: common.nlink.into(),
            fragment: fragment.into(),
            offset: offset.into(),
            xattr: common.xattr.unwrap_or(NONE_32).into(),
        });
    }
    for size in &body.sizes {
        out.0.extend_from_slice(&size.to_le_bytes());
    }
}

/// Encodes a device number as Linux does.
fn rdev(device: Device) -> Result<u32, BuildError> {
    let Device { major, minor } = device;
    device.pack().ok_or_else(|| {
        cannot(format!(
            "the device number {major}:{minor}; the largest is 4095:1048575"
        ))
    })
}
