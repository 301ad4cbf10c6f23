//! The exFAT driver: maps volumes and changes them.
//!
//! `docs/formats/exfat.md` describes the format, and the order in which changes become durable. The
//! driver does not move file data; it only maps data for reads and writes.

mod alloc;
mod bits;
mod boot;
mod boot_region;
mod chain;
mod change;
mod check;
mod clusters;
mod commit;
mod default_upcase;
mod deleted;
mod describe;
mod dir;
mod driver;
mod entry_set;
mod error;
mod fat;
mod follow;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod measure;
mod moving;
mod mutate;
mod name;
mod nodes;
mod ondisk;
mod open;
mod place;
mod regions;
pub mod repair;
mod session;
mod steps;
mod store;
mod time;
mod upcase;
mod volume;
#[cfg(feature = "write")]
pub mod write;

use std::sync::Arc;

use forerun_vfs::{Format, Magic};

pub use deleted::{DeletedFile, Remains};
pub use driver::Exfat;

/// The driver option that lets names end with dots, which other systems strip.
pub const KEEP_LAST_DOTS: &str = "keep_last_dots";

/// The registry entry of exFAT.
pub const FORMAT: Format = Format {
    name: "exfat",
    probe_len: 512,
    probe: boot::probe,
    magics: &[Magic {
        offset: 3,
        bytes: b"EXFAT   ",
    }],
    measure: measure::measure,
    open: |with| Ok(Arc::new(Exfat::open(with)?)),
    archive: None,
    tail: None,
    open_mut: Some(|with| Ok(Arc::new(Exfat::open_mut(with)?))),
};
