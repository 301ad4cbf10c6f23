//! The capabilities that only some drivers have, one trait per purpose.
//!
//! A driver lists the traits that it implements in
//! [`FileSystem::capabilities`](crate::FileSystem::capabilities). If one is missing, the caller
//! uses the default that is described at the field.

use std::any::Any;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{BlobId, ReadAt};

use crate::{EncodedBlock, Error, FileSystem, MetadataLayout, NodeId, Place, Region, Result};

#[derive(Clone, Copy, Default)]
pub struct Capabilities<'a> {
    /// Offsets of metadata. Without it, metadata may be anywhere.
    pub layout: Option<&'a dyn Layout>,
    /// Digests and checksums. Without it, no bytes are verified.
    pub verifier: Option<&'a dyn Verifier>,
    /// File data in other sources. Without it, all extents are in the image.
    pub blobs: Option<&'a dyn Blobs>,
    /// File data in a store of objects. Opening an object may fail although stat succeeds, so front
    /// ends open the data at open(2).
    pub objects: Option<&'a dyn Objects>,
    /// Blocks that refer to bytes before them. Without it, no block does.
    pub history: Option<&'a dyn History>,
    /// Nodes that the driver has inferred. Without it, the image describes all nodes.
    pub inferred: Option<&'a dyn Inferred>,
    /// Hard links to files of lower layers. Without it, there are none.
    pub layered: Option<&'a dyn Layered>,
    /// Several images shown as one tree. Without it, there is one image.
    pub merged: Option<&'a dyn Merged>,
    /// Attributes of FAT. Without it, nodes have none.
    pub fat_attributes: Option<&'a dyn FatAttributes>,
    /// The driver itself, for a caller that knows its type and needs more than the traits offer.
    pub driver: Option<&'a (dyn Any + 'static)>,
}

/// Attributes as FAT and exFAT have them.
pub trait FatAttributes {
    /// Returns the attributes of `node`: 1 read-only, 2 hidden, 4 system, 0x10 directory, 0x20 archive.
    ///
    /// # Errors
    /// The errors of [`metadata`](super::FileSystem::metadata).
    fn fat_attributes(&self, node: NodeId) -> Result<u32>;
}

/// The location of metadata and of free space in an image.
pub trait Layout {
    /// Returns where the image keeps its metadata, for readahead and prefetch. Unknown by default.
    fn metadata_layout(&self) -> MetadataLayout {
        MetadataLayout::Unknown
    }

    /// Returns the offset of the inode of `node` in the image, if the driver knows it without a
    /// read. A caller that requests many inodes together uses it ([`MetadataLayout::Locatable`]).
    /// Returns `None` by default, and if inodes are compressed or outside of the image.
    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        let _ = node;
        None
    }

    /// Visits the parts of the image that hold no file contents and that the driver knows without a
    /// walk: tables, and free space. They may come in any order. Bytes that no region covers are
    /// file contents, or metadata that only a walk finds. By default there are no regions.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] for the structures that describe the regions. Some regions
    /// may have been visited before the error.
    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        let _ = visit;
        Ok(())
    }

    /// Visits the parts of the image that hold the metadata of `node`: its inode, the entries of a
    /// directory, the pointers to its contents. In contrast to [`regions`](Self::regions), only a
    /// walk finds these parts. Nodes may share parts. By default there are none.
    ///
    /// # Errors
    /// The errors of [`FileSystem::metadata`]. Some regions may have been visited before the error.
    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        let _ = (node, visit);
        Ok(())
    }

    /// Returns the part of the image that its maker wants fetched before it is read. Empty by
    /// default.
    fn wanted_ahead(&self) -> Range<u64> {
        0..0
    }

    /// Returns the most names that an image of this length can hold, if the format implies a bound.
    /// A tree with more names shows some directory twice; walks end there. Unknown by default.
    fn names_max(&self) -> Option<u64> {
        None
    }

    /// Returns whether a block of file data may belong to several files, or to one file several
    /// times. Files of equal contents that start at the same offset do not count. False by default.
    fn shares_blocks(&self) -> bool {
        false
    }
}

/// A running checksum of a file, fed with its bytes from the first to the last.
pub trait FileSum: Send {
    fn take(&mut self, bytes: &[u8]);

    /// Compares the checksum with the one in the image.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they differ.
    fn finish(&self) -> Result<()>;
}

/// Verifies file data against digests and checksums that the driver knows.
pub trait Verifier {
    /// Verifies the decoded bytes of a block. Called after each decode, before any of the bytes are
    /// used.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes do not match.
    fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        let _ = (block, decoded);
        Ok(())
    }

    /// Verifies the stored bytes of a block. Called before each decode.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the bytes do not match.
    fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        let _ = (block, stored);
        Ok(())
    }

    /// Returns a checksum of all bytes of a file, if reads of its parts cannot be verified. Callers
    /// that read the whole file compare it. There is none by default, and none for files that may
    /// have holes.
    ///
    /// # Errors
    /// [`Error::StaleNode`].
    fn file_sum(&self, node: NodeId) -> Result<Option<Box<dyn FileSum>>> {
        let _ = node;
        Ok(None)
    }

    /// Returns whether the driver compares the bytes of a place with a digest or checksum, when the
    /// image is opened or read. Checksums in the streams of a codec do not count. False by default.
    fn proves(&self, place: &Place) -> bool {
        let _ = place;
        false
    }

    /// Returns how many of the metadata bytes read so far no checksum covers, so that a flipped bit
    /// may go unnoticed. `None` means all metadata. 0 by default, for formats that have checksums
    /// in places.
    fn unproven_metadata(&self) -> Option<u64> {
        Some(0)
    }
}

/// Sources of file data besides the image: other devices, temporary files, objects of a store.
pub trait Blobs {
    /// Opens a blob that extents refer to. Each call opens it again, so the caller keeps it open
    /// while it needs it.
    ///
    /// # Errors
    /// [`Error::Blob`] if it cannot be opened.
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>>;

    /// Returns the number of devices besides the image.
    fn devices(&self) -> u32 {
        0
    }
}

/// A store of objects, each of which holds the data of a file. The objects are [`Blobs`] too.
pub trait Objects {
    /// Returns whether a blob that was opened before may still be read. Called when a file with
    /// data in it is opened; on `false` the caller opens the blob again.
    fn is_current(&self, blob: BlobId) -> bool;

    /// Opens the host's file that holds exactly the data of `node`, if there is one. The kernel can
    /// read such a file itself.
    ///
    /// # Errors
    /// The errors of [`FileSystem::map`] and [`Blobs::blob`].
    fn backing(&self, node: NodeId) -> Result<Option<File>>;
}

/// A compressed stream in which blocks refer to bytes before them.
pub trait History {
    /// Returns the bytes before a block that its codec refers to
    /// ([`Codec::refers_back`](crate::Codec::refers_back)), which [`EncodedBlock::decode_after`]
    /// takes. Called once per decode of such a block.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if the bytes are not what the driver expected.
    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>>;
}

/// Nodes that the image does not describe and the driver has inferred.
pub trait Inferred {
    /// Returns whether a directory exists only because the paths of other nodes name it, so that
    /// the image lacks its owner, mode and times. Other layers may have them.
    fn is_implied(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }

    /// Returns whether a salvage has assembled the bytes of `node` by guess. Each byte is in the
    /// image, but the file may have begun or ended elsewhere.
    fn is_guess(&self, node: NodeId) -> bool {
        let _ = node;
        false
    }
}

/// An image that was opened as one layer of several.
pub trait Layered {
    /// Visits the hard links to files of lower layers, each with the path of its file. In this
    /// image, such a link is a node that stands for the file.
    fn links_below(&self, visit: &mut dyn FnMut(NodeId, &[u8]));
}

/// A tree that consists of several images.
pub trait Merged {
    /// Returns the name of the image that a blob belongs to, for errors about its bytes.
    fn image_of(&self, blob: BlobId) -> Option<Arc<str>>;

    /// Returns the range of the tree's image that extents call `blob`. The images are concatenated:
    /// [`VolumeInfo::image_len`](crate::VolumeInfo::image_len) and [`Layout::regions`] count them
    /// so. Returns `None` for a blob outside of the images.
    fn image_range(&self, blob: BlobId) -> Option<Range<u64>>;
}

/// Shorthands for the methods of capabilities, with their defaults.
impl dyn FileSystem + '_ {
    /// Returns [`Layout::metadata_layout`], or `Unknown` without that capability.
    #[must_use]
    pub fn metadata_layout(&self) -> MetadataLayout {
        let layout = self.capabilities().layout;
        layout.map_or(MetadataLayout::Unknown, Layout::metadata_layout)
    }

    /// Returns [`Verifier::file_sum`], or `None` without that capability.
    ///
    /// # Errors
    /// [`Error::StaleNode`].
    pub fn file_sum(&self, node: NodeId) -> Result<Option<Box<dyn FileSum>>> {
        match self.capabilities().verifier {
            Some(verifier) => verifier.file_sum(node),
            None => Ok(None),
        }
    }

    /// Returns [`Inferred::is_implied`], or false without that capability.
    #[must_use]
    pub fn is_implied(&self, node: NodeId) -> bool {
        let inferred = self.capabilities().inferred;
        inferred.is_some_and(|inferred| inferred.is_implied(node))
    }

    /// Returns [`Inferred::is_guess`], or false without that capability.
    #[must_use]
    pub fn is_guess(&self, node: NodeId) -> bool {
        let inferred = self.capabilities().inferred;
        inferred.is_some_and(|inferred| inferred.is_guess(node))
    }

    /// Returns [`Objects::backing`], or `None` without that capability.
    ///
    /// # Errors
    /// The errors of [`FileSystem::map`] and [`Blobs::blob`].
    pub fn backing(&self, node: NodeId) -> Result<Option<File>> {
        match self.capabilities().objects {
            Some(objects) => objects.backing(node),
            None => Ok(None),
        }
    }

    /// Opens a blob that extents refer to.
    ///
    /// # Errors
    /// The errors of [`Blobs::blob`]; [`Error::Unsupported`] if the driver has no blobs.
    pub fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        match self.capabilities().blobs {
            Some(blobs) => blobs.blob(blob),
            None => Err(Error::no_blob(blob)),
        }
    }
}
