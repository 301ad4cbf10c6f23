//! composefs: EROFS metadata over a content-addressed object store.
//!
//! A composefs image is an EROFS image with only metadata and short files. The bytes of longer
//! files are objects in a store that many images share, named by their fs-verity digests.
//! [`write`](mod@write) makes both; its images equal those of the reference implementation byte for
//! byte. [`Composefs`] reads them, with [`Objects`] as the store. `docs/formats/composefs.md`
//! describes the format. This crate moves file data only into the store.

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

pub use digest::{Algorithm, Digest};
pub use driver::Composefs;
pub use dump::{DumpName, Escape, dump_line};
pub use gc::{Garbage, Needed, collect};
pub use object_name::{ObjectName, Payload};
pub use objects::Objects;
pub use store::{Additions, ObjectStore, Source, Stored};

/// The registry entry of composefs. Probed before EROFS, because these images are valid EROFS
/// images too.
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

/// Validates the composefs header of an image that a search has found, and the EROFS superblock.
fn measure_image(source: &dyn ReadAt) -> Result<Measured> {
    if ondisk::is_composefs(&read_head(source, ondisk::PROBE_LEN)?) {
        return (forerun_erofs::FORMAT.measure)(source);
    }
    Err(Error::UnknownFormat {
        expected: Some(FORMAT.name.into()),
        found: "no composefs header".into(),
    })
}

/// The registry entry of composefs object stores. The header may be missing; the image is then
/// plain EROFS.
pub const OBJECTS: ObjectFormat = ObjectFormat {
    format: FORMAT.name,
    found_as: forerun_erofs::FORMAT.name,
    open: |path| Ok(Arc::new(Objects::new(ObjectStore::open(path)?))),
    open_base: |path| Ok(Arc::new(Objects::below(ObjectStore::open(path)?))),
    digests: |image, digits| {
        let digests = match digits {
            Some(64) => vec![Algorithm::Sha256.measure(image)?.0],
            Some(128) => vec![Algorithm::Sha512.measure(image)?.0],
            _ => Algorithm::measure_all(image)?.to_vec(),
        };
        Ok(digests.iter().map(ToString::to_string).collect())
    },
    collector: gc::collector,
};
