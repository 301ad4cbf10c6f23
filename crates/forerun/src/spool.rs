//! Temporary files for data that must be decoded once and kept: archives, and members, that are
//! compressed in one piece.

use std::sync::Arc;

use forerun_disk::payload::may_hold_layers;
use forerun_io::{ReadAt, usize_from};
use forerun_vfs::MakeSpool;

use crate::OpenOptions;
use crate::identify::probe_len;

/// Returns whether opening the image in `source` may need a temporary file, for programs that later
/// lose the right to make files; see [`OpenOptions::spool`]. Reads only the first bytes.
#[must_use]
pub fn may_be_needed(source: &dyn ReadAt, options: &OpenOptions) -> bool {
    head(source, options).is_some_and(|head| may_spool(&head))
}

/// Returns whether opening the image in `source` may take long, so that its index is worth storing;
/// see [`OpenOptions::index`]. Reads only the first bytes.
#[must_use]
pub fn is_worth_an_index(source: &dyn ReadAt, options: &OpenOptions) -> bool {
    head(source, options).is_some_and(|head| has_index(&head) || may_hold_layers(&head))
}

/// Reads as many bytes from the start of the image as probes need.
fn head(source: &dyn ReadAt, options: &OpenOptions) -> Option<Vec<u8>> {
    let range = options.range(source.len());
    let len = range.end - range.start;
    let mut head = vec![0; probe_len().min(usize_from(len))];
    source.read_exact_at(range.start, &mut head).ok()?;
    Some(head)
}

fn may_spool(head: &[u8]) -> bool {
    let formats: &[fn(&[u8]) -> bool] = &[
        #[cfg(feature = "tar")]
        forerun_tar::may_spool,
        #[cfg(feature = "zip")]
        forerun_zip::may_spool,
    ];
    formats.iter().any(|may_spool| may_spool(head)) || may_hold_layers(head)
}

#[cfg(feature = "tar")]
use forerun_tar::has_index;

#[cfg(not(feature = "tar"))]
fn has_index(_head: &[u8]) -> bool {
    false
}

/// Returns `None`: no format needs temporary files.
#[cfg(not(any(feature = "tar", feature = "zip")))]
pub(crate) fn default() -> Option<Arc<dyn MakeSpool>> {
    None
}

/// Returns the default maker of temporary files: unnamed files in the directory for temporary
/// files.
#[cfg(any(feature = "tar", feature = "zip"))]
pub(crate) fn default() -> Option<Arc<dyn MakeSpool>> {
    struct Temporary;

    impl MakeSpool for Temporary {
        fn make(&self) -> std::io::Result<std::fs::File> {
            tempfile::tempfile()
        }
    }

    Some(Arc::new(Temporary))
}
