//! composefs: EROFS metadata over a content-addressed object store.
//!
//! A composefs image is an EROFS image of metadata. Files above a certain length have their bytes
//! in a store of objects that many images share, named by their fs-verity digests.
//! [`write`](mod@write) makes both; its images are those of the reference implementation, byte for
//! byte. [`Composefs`] reads them, with [`Objects`] as the store. The format is described in
//! `docs/formats/composefs.md`. Nothing here moves file data, except into the store.

mod digest;
mod driver;
mod dump;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gc;
mod object;
mod object_name;
mod objects;
mod ondisk;
mod overlay;
mod store;
mod verity;
#[cfg(feature = "write")]
pub mod write;
#[cfg(feature = "write")]
mod xxh32;

use std::sync::Arc;

use forerun_io::ReadAt;
use forerun_vfs::objects::ObjectFormat;
use forerun_vfs::{Error, Format, Magic, Measured, Result, read_head};

pub use digest::Digest;
pub use driver::Composefs;
pub use dump::{DumpName, Escape, dump_line};
pub use gc::{Garbage, Needed, collect};
pub use object_name::{ObjectName, Payload};
pub use objects::Objects;
pub use store::{Additions, ObjectStore, Source, Stored};
pub use verity::Algorithm;

/// composefs in the registry. Probed before EROFS, since these images are valid EROFS images as
/// well.
pub const FORMAT: Format = Format {
    name: "composefs",
    probe_len: ondisk::PROBE_LEN,
    probe: ondisk::is_composefs,
    magics: &[Magic {
        offset: 0,
        bytes: &ondisk::HEADER_MAGIC.to_le_bytes(),
    }],
    measure: measure_image,
    open: |with| Ok(Arc::new(Composefs::open(with)?)),
    archive: None,
    tail: None,
    open_mut: None,
};

/// Validates the header of an image that a search has met, and the superblock of EROFS.
fn measure_image(source: &dyn ReadAt) -> Result<Measured> {
    if ondisk::is_composefs(&read_head(source, ondisk::PROBE_LEN)?) {
        return (forerun_erofs::FORMAT.measure)(source);
    }
    Err(Error::UnknownFormat {
        expected: Some(FORMAT.name.into()),
        found: "no composefs header".into(),
    })
}

/// The object stores of composefs in the registry. The header may be missing: then an image is one of EROFS,
/// which its metadata is.
pub const OBJECTS: ObjectFormat = ObjectFormat {
    format: FORMAT.name,
    found_as: forerun_erofs::FORMAT.name,
    open: |path| Ok(Arc::new(Objects::new(ObjectStore::open(path)?))),
    open_base: |path| Ok(Arc::new(Objects::below(ObjectStore::open(path)?))),
    digests: |image| {
        Ok(Algorithm::measure_all(image)?
            .map(|digest| digest.to_string())
            .to_vec())
    },
    collector: gc::collector,
};
