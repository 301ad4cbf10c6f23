//! The trait that a format driver implements.

use std::any::Any;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{BlobId, ReadAt};

use crate::{
    EncodedBlock, Error, Extent, FileType, Metadata, MetadataLayout, NodeId, Place, Region, Result,
};

/// A position between two entries of a directory. Its value is private to the driver. It stays
/// valid for as long as the image does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirCursor(pub u64);

impl DirCursor {
    /// Before the first entry.
    pub const START: Self = Self(0);
}

/// An entry of a directory. `.` and `..` are never visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Name; passes [`check_name`](crate::check_name).
    pub name: &'a [u8],
    /// The node it names. Hard links have the same one.
    pub node: NodeId,
    /// Kind of that node.
    pub kind: FileType,
    /// Cursor that continues after this entry; never [`DirCursor::START`].
    pub next: DirCursor,
}

/// The properties of an image as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeInfo {
    /// Name of the format.
    pub format: &'static str,
    /// Volume name or label; empty if there is none.
    pub label: Vec<u8>,
    /// Length that the image declares, in bytes; the source may be longer.
    pub image_len: u64,
    /// Block size that statfs reports, in bytes.
    pub block_size: u32,
    /// Number of inodes, if the format stores it.
    pub inodes: Option<u64>,
    /// The most names that an image of this length can hold, if the format implies it. A tree with
    /// more names shows some directory twice; walks end there.
    pub names_max: Option<u64>,
    /// Longest name the format can hold, in bytes.
    pub name_max: u32,
    /// Whether any node can have extended attributes.
    pub has_xattrs: bool,
    /// Whether access control lists may be among them: [`ACL_ACCESS`](crate::ACL_ACCESS),
    /// [`ACL_DEFAULT`](crate::ACL_DEFAULT).
    pub has_acls: bool,
    /// Whether nodes have owners and permissions of their own; if not, front ends may substitute
    /// the caller's.
    pub has_owners: bool,
    /// Whether nodes have modification times; if not, all times are the epoch.
    pub has_times: bool,
    /// Whether files have their data outside the image, so that opening one may fail where stat
    /// does not: front ends then let the engine open a file's data at open(2).
    pub opens: bool,
    /// Devices besides the image that hold data of files.
    pub devices: u32,
    /// Whether a block of file data may belong to several files, or to one file several times, other
    /// than by files of equal contents that begin in the same place.
    pub shares_blocks: bool,
    /// Whether names that differ only in case name the same node: a front end that caches names
    /// must not compare them by their bytes.
    pub folds_case: bool,
    /// When the image was made, in seconds since the epoch, where it says so.
    pub created: Option<i64>,
    /// Further facts in the format's own terms, for `info`.
    pub details: Vec<(&'static str, String)>,
    /// Members of the image that are no part of the tree: nothing that reads all of it gets them.
    pub left_out: u64,
    /// Warnings for a user of the image, a sentence each without a full stop.
    pub warnings: Vec<String>,
}

impl VolumeInfo {
    /// Creates the description of a volume with only the basic facts: no label, no xattrs, no
    /// details.
    #[must_use]
    pub const fn new(format: &'static str, image_len: u64, block_size: u32) -> Self {
        Self {
            format,
            label: Vec::new(),
            image_len,
            block_size,
            inodes: None,
            names_max: None,
            name_max: 255,
            has_xattrs: false,
            has_acls: false,
            has_owners: true,
            has_times: true,
            devices: 0,
            opens: false,
            shares_blocks: false,
            folds_case: false,
            created: None,
            details: Vec::new(),
            left_out: 0,
            warnings: Vec::new(),
        }
    }
}

/// A finding of [`FileSystem::check`].
#[derive(Clone, Debug)]
pub struct Problem {
    /// The node concerned, if there is one.
    pub node: Option<NodeId>,
    /// Whether the image can still be used as it is. A warning is a deviation that loses nothing.
    pub fatal: bool,
    /// The error, with its place.
    pub error: Error,
}

/// The checksum of a file, whose bytes pass by from the first to the last.
pub trait FileSum: Send {
    /// Takes the next bytes.
    fn take(&mut self, bytes: &[u8]);

    /// Compares the checksum with what the image says.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is another one.
    fn finish(&self) -> Result<()>;
}

/// A driver: maps files to places in the image, by metadata that it reads through its source.
///
/// All methods take `&self` and are called from many threads at once. None reads file data.
/// No method panics, loops without bound or allocates by an unchecked field, whatever the image.
pub trait FileSystem: Send + Sync {
    /// Returns the properties of the image as a whole.
    fn volume(&self) -> VolumeInfo;

    /// Returns the driver itself, for a caller that knows its type and asks for more than other formats have.
    /// Nothing by default, and where several images are one tree.
    fn driver(&self) -> Option<&dyn Any> {
        None
    }

    /// Returns the root directory.
    fn root(&self) -> NodeId;

    /// Returns the offset of the inode of `node` in the image, if it is known without a read: for a
    /// caller that requests many inodes together ([`MetadataLayout::Locatable`]). Returns nothing by
    /// default, and if inodes are compressed or lie outside the image.
    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        let _ = node;
        None
    }

    /// Returns the metadata of `node`, as `stat` shows it.
    ///
    /// # Errors
    /// [`Error::StaleNode`] for an id that names no inode, [`Error::Corrupt`], [`Error::Io`].
    fn metadata(&self, node: NodeId) -> Result<Metadata>;

    /// Returns the node that `name` names in `dir`. `.` and `..` are not looked up here.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], and the errors of [`metadata`](Self::metadata).
    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>>;

    /// Visits the entries of `dir` after `from`, in the image's order, until the visitor breaks.
    ///
    /// # Errors
    /// The errors of [`lookup`](Self::lookup). The entries before the damage have been visited.
    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Returns the target of a symbolic link: not empty, without NUL, at most
    /// [`Limits::symlink_len`](crate::Limits::symlink_len) bytes.
    ///
    /// # Errors
    /// [`Error::NotASymlink`], and the errors of [`metadata`](Self::metadata).
    fn read_link(&self, node: NodeId) -> Result<Vec<u8>>;

    /// Visits the extended attributes of `node`: full name, value. None by default.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let _ = (node, visit);
        Ok(())
    }

    /// Visits the extents that cover `range` of a regular file in order and without gaps, until the
    /// visitor breaks. The range is clamped to the file's size; the first and last extent may be
    /// clamped to the range or reach past it. No data is read, only metadata.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::NotAFile`], and the errors of
    /// [`metadata`](Self::metadata).
    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Opens a blob that extents refer to. The caller keeps it open while it needs it; each call
    /// opens it again. There are no blobs by default.
    ///
    /// # Errors
    /// [`Error::Blob`] if it cannot be opened, [`Error::Unsupported`] if no extent refers to it.
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        Err(Error::Unsupported(format!(
            "data outside the image (blob {})",
            blob.0
        )))
    }

    /// Returns whether a blob that [`blob`](Self::blob) opened before may still be read. Called
    /// when a file with data in it is opened; on `false` the caller opens the blob again. True by
    /// default.
    fn is_current(&self, _blob: BlobId) -> bool {
        true
    }

    /// Returns the bytes before a block that its codec refers to ([`Codec::refers_back`](crate::Codec::refers_back)): the history that
    /// [`EncodedBlock::decode_after`] takes. Called once for each time that such a block is decoded. There are
    /// no such bytes by default.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not what the driver expected, [`Error::Io`].
    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        let _ = block;
        Ok(Vec::new())
    }

    /// Verifies the decoded bytes of a block against digests that the driver knows. Called each time that a block was
    /// decoded, before any of its bytes are used. Nothing is verified by default.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are other bytes.
    fn verify(&self, _block: &EncodedBlock, _decoded: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Verifies the stored bytes of a block against digests that the driver knows, as [`verify`](Self::verify) does with
    /// what they decode to. Called each time that a block is to be decoded, before that. Nothing is verified by default.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are other bytes.
    fn verify_stored(&self, _block: &EncodedBlock, _stored: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Returns the checksum of all bytes of a file, where no read of a part of it can compare them. Callers that read the file
    /// whole compare it. There is none by default, and none of files that may have holes.
    ///
    /// # Errors
    /// [`Error::StaleNode`].
    fn file_sum(&self, _node: NodeId) -> Result<Option<Box<dyn FileSum>>> {
        Ok(None)
    }

    /// Returns whether digests or checksums besides those in the streams of a codec cover the bytes of a place, and are
    /// compared when the image is opened or read. They do not by default.
    fn proves(&self, _place: &Place) -> bool {
        false
    }

    /// Returns the number of bytes of the metadata that was read which no checksum covers, so that a flipped bit may go
    /// unnoticed; nothing if that is all metadata. It is 0 by default, and for formats that have checksums in places.
    fn unproven_metadata(&self) -> Option<u64> {
        Some(0)
    }

    /// Returns the part of the image that its maker wants fetched before it is read. There is none by default.
    fn wanted_ahead(&self) -> Range<u64> {
        0..0
    }

    /// Returns the name of the image that a blob belongs to, where a tree is made of several images:
    /// errors of its bytes have it. Returns nothing by default.
    fn image_of(&self, _blob: BlobId) -> Option<Arc<str>> {
        None
    }

    /// Returns the bytes of the tree's image that extents call `blob`. A tree that is made of several images has
    /// them one after another, and [`VolumeInfo::image_len`] and [`regions`](Self::regions) count them so. Returns
    /// nothing for a blob outside of them, as a device or an object of a store.
    fn image_range(&self, blob: BlobId) -> Option<Range<u64>> {
        (blob == BlobId::IMAGE).then(|| 0..self.volume().image_len)
    }

    /// Opens the file of the host that holds exactly the data of `node`, if there is one: the
    /// kernel can read such a file itself. Returns nothing by default.
    ///
    /// # Errors
    /// The errors of [`map`](Self::map) and [`blob`](Self::blob).
    fn backing(&self, node: NodeId) -> Result<Option<File>> {
        let _ = node;
        Ok(None)
    }

    /// Returns whether a salvage has put the bytes of `node` together by guess: each of them is in the image, but
    /// the file may have begun or ended elsewhere. False by default.
    fn is_guess(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Returns whether a directory is there only because the paths of other nodes name it, so that the image has no
    /// owner, mode and times of it. Other layers may know them. False by default.
    fn is_implied(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Visits the hard links to files of lower layers, each with the path of its file. They are nodes of this image
    /// that stand for those files. There are none unless the image was opened as a layer.
    fn links_below(&self, visit: &mut dyn FnMut(NodeId, &[u8])) {
        let _ = visit;
    }

    /// Returns where the image keeps its metadata, for readahead and prefetch. Unknown by default.
    fn metadata_layout(&self) -> MetadataLayout {
        MetadataLayout::Unknown
    }

    /// Visits the parts of the image that hold no contents of files and that the driver knows without a
    /// walk: tables, and what is free. They may come in any order, and what no region covers is data, or
    /// metadata that is found by a walk only. There are none by default.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] on the structures that say it. Regions may have been visited.
    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        let _ = visit;
        Ok(())
    }

    /// Visits the parts of the image that hold the metadata of `node`: its inode, the entries of a directory, what says where
    /// the contents are. They are found by a walk only, unlike those of [`regions`](Self::regions). Nodes may share
    /// some. There are none by default.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata). Regions may have been visited.
    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        let _ = (node, visit);
        Ok(())
    }

    /// Returns the on-disk fields of `node` in the format's own terms and order, for `dump`.
    /// Without a node, returns the fields of the image as a whole.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>>;

    /// Runs the checks of the format that reading does not run: checksums, reserved fields, link
    /// counts. Checks `node`, or without a node the image as a whole. The caller also walks the
    /// tree and reads all files.
    ///
    /// # Errors
    /// Only errors that end the check: [`Error::Io`] on the structure itself.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let _ = (node, report);
        Ok(())
    }
}
