//! Filesystem images opened from userspace: the library.
//!
//! [`Image::open`] finds the format by content. Files are then read by their paths:
//!
//! ```
#![doc = include_str!("example.md")]
//! let image = forerun::Image::open("x.sqsh")?;
//! let passwd = image.read_to_string("/etc/passwd")?;
//! print!("{passwd}");
//! # assert_eq!(passwd, "root:x:0:0\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | call |
//! |---|---|
//! | open a part of a file, name the format, set limits | [`OpenOptions`] |
//! | read a file whole, or through `Read` and `Seek` | [`Image::read`], [`Image::file`] |
//! | list a directory, walk a tree | [`Image::read_dir`], [`Image::walk`] |
//! | ask for metadata, links, attributes | [`Image::metadata`], [`Image::read_link`], [`Image::xattrs`] |
//! | open several images as one tree, as containers stack layers | [`Image::open_layers`] |
//! | open an image on a server (feature `remote`) | [`Image::open`] with its address |
//! | make an image | [`PackOptions`], [`Writer`], [`build`] |
//!
//! Paths resolve inside the image: no `..` and no symbolic link leads out of it. Methods that take
//! paths return [`Error`], which names the image and the path and converts into an
//! [`io::Error`](std::io::Error) of the same kind. The folder `examples` of the crate has a short
//! program for each common task.
//!
//! The layer below paths works with nodes, for programs that serve many requests, such as a mount.
//! A [`Reader`] reads the bytes of a node, and a [`vfs::FileSystem`] its metadata; both return
//! [`vfs::Error`]. A [`Writer`] makes an image from a [`build::Tree`]. The readable formats and the
//! writable formats are fixed lists in this crate. [`unstable`] has what only forerun's own
//! programs share; any release may change it.
//!
//! Features, all on by default: one for each format (`romfs`, `cramfs`, `tar`, `zip`, `squashfs`,
//! `erofs`, `composefs`, `exfat`), `write` to make images, `layouts` for container images on disk,
//! `remote` for images on servers. Without `remote`, nothing opens a socket and no asynchronous
//! runtime is built. `exfat` includes writing to volumes, and their repair.
//!
//! ```
//! use std::sync::Arc;
//!
//! use forerun::build::{Content, NewNode, NodeKind, RomfsOptions, Tree};
//! use forerun::{Image, MemorySource, Observer, OpenOptions, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Make an image in memory...
//! let mut tree = Tree::default();
//! let kind = NodeKind::File { len: 5, content: Content::Bytes(b"hello"[..].into()) };
//! tree.add(Tree::ROOT, b"greeting", NewNode::new(kind, 0o644))?;
//! let (mut bytes, observer) = (Vec::new(), Arc::new(Observer::default()));
//! Writer::Romfs(RomfsOptions::default()).write(&tree, &mut bytes, &observer)?;
//!
//! // ...open it, whatever its format, and read it.
//! let image = Image::from_source(Arc::new(MemorySource::new(bytes)), &OpenOptions::default())?;
//! assert_eq!(image.read("greeting")?, b"hello");
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

#[cfg(feature = "remote")]
mod containers;
mod contents;
mod deferred;
mod devices;
mod digest;
mod each_layer;
mod entries;
mod error;
mod expanded;
mod file;
mod files;
#[cfg(feature = "write")]
mod from_image;
mod identify;
mod image;
#[cfg(feature = "tar")]
mod kept;
#[cfg(any(feature = "layouts", feature = "remote"))]
mod kept_index;
#[cfg(feature = "layouts")]
mod known_digests;
mod layer_source;
mod layers;
#[cfg(feature = "write")]
mod levels;
mod locking;
mod locks;
#[cfg(feature = "write")]
mod named_writer;
#[cfg(feature = "composefs")]
mod objects;
#[cfg(feature = "layouts")]
mod on_disk;
mod open;
mod opened;
mod options;
#[cfg(feature = "write")]
mod pack;
#[cfg(feature = "exfat")]
mod part;
mod registry;
#[cfg(feature = "exfat")]
mod repair;
mod sif;
mod spool;
mod spool_turns;
#[cfg(feature = "exfat")]
mod undo;
#[cfg(feature = "exfat")]
mod volume;
#[cfg(feature = "remote")]
mod whole;
#[cfg(feature = "write")]
mod writer;
mod xattrs;

/// Input for writers: trees of nodes from directories, lists and images, and the
/// options of each format.
#[cfg(feature = "write")]
pub mod build {
    pub use forerun_build::*;
    pub use forerun_codec::{
        Bcj, BcjSet, Encoding, FillEncoding, LzmaTuning, LzoAlgorithm, ZlibStrategies, ZlibStrategy,
    };
    #[cfg(feature = "composefs")]
    pub use forerun_composefs::write::ComposefsOptions;
    #[cfg(feature = "erofs")]
    pub use forerun_erofs::write::{
        Compression, DeviceWithData, ErofsOptions, Fragments as ErofsFragments,
    };
    #[cfg(feature = "exfat")]
    pub use forerun_exfat::write::ExfatOptions;
    #[cfg(feature = "romfs")]
    pub use forerun_romfs::RomfsOptions;
    #[cfg(feature = "squashfs")]
    pub use forerun_squashfs::write::{Compress, Fragments, SquashfsOptions};

    pub use crate::from_image::{ImageOptions, from_damaged_image, from_image};
    pub use crate::levels::compressor_level;
    pub use crate::writer::Written;
}

/// Items that only forerun's own programs need. Any release may change them.
pub mod unstable {
    #[cfg(any(feature = "layouts", feature = "remote"))]
    pub use forerun_cache as cache;
    #[cfg(feature = "composefs")]
    pub use forerun_composefs as composefs;
    pub use forerun_disk as disk;
    #[cfg(feature = "erofs")]
    pub use forerun_erofs as erofs;
    #[cfg(feature = "exfat")]
    pub use forerun_exfat as exfat;
    pub use forerun_layers::blob_of_layer;
    #[cfg(any(feature = "layouts", feature = "remote"))]
    pub use forerun_remote as remote;
    #[cfg(feature = "squashfs")]
    pub use forerun_squashfs as squashfs;

    #[cfg(feature = "remote")]
    pub use crate::containers::{container_layers, image_index};
    pub use crate::contents::contents;
    #[cfg(feature = "tar")]
    pub use crate::kept::KeptIndex;
    #[cfg(any(feature = "layouts", feature = "remote"))]
    pub use crate::layer_source::LazyLayer;
    #[cfg(feature = "layouts")]
    pub use crate::on_disk::DiskImage;
    pub use crate::registry::formats;
    #[cfg(feature = "exfat")]
    pub use crate::volume::{VolumeMut, WriteOptions};

    /// Locks of volumes that change, and the processes that hold them.
    pub mod locks {
        pub use crate::locks::*;
    }

    /// Objects that images refer to.
    #[cfg(feature = "composefs")]
    pub mod objects {
        pub use crate::objects::*;
    }

    /// Repair of volumes.
    #[cfg(feature = "exfat")]
    pub mod repair {
        pub use crate::repair::*;
    }

    /// Temporary files for streams that are decoded as a whole.
    pub mod spool {
        pub use crate::spool::*;
    }
}

pub use entries::{DirEntry, ReadDir, Walk};
pub use error::{Cause, Error, Result};
pub use file::File;
pub use forerun_engine::{EngineOptions, Reader};
pub use forerun_io::{Limits, MemorySource, Observer, ReadAt};
#[cfg(any(feature = "layouts", feature = "remote"))]
pub use forerun_remote::RemoteOptions;
pub use forerun_vfs as vfs;
pub use forerun_vfs::{FileType, Metadata};
pub use image::Image;
pub use layer_source::LayerSource;
pub use options::OpenOptions;
#[cfg(feature = "write")]
pub use pack::{PackError, PackOptions, Packed};
pub use registry::format_names;
#[cfg(feature = "write")]
pub use writer::Writer;
pub use xattrs::Xattrs;
