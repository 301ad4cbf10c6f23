//! Files whose contents are an encoded form of an image: disk images and compressed images.

use std::sync::Arc;

use forerun_disk::{Container, Expanded, Foreign};
use forerun_io::ReadAt;
use forerun_vfs::{Limits, Result};

use crate::identify::unknown;

/// Opens `source` as a disk image if it is one as a whole. Offsets then refer to the disk.
///
/// # Errors
/// The errors of [`Expanded::whole`]; [`Error::UnknownFormat`](forerun_vfs::Error::UnknownFormat)
/// for the disk of a virtual machine.
pub fn whole_disk(source: &Arc<dyn ReadAt>, limits: &Limits) -> Result<Option<Expanded>> {
    if let Some(foreign) = Foreign::read(&**source)? {
        let container = Container::VirtualDisk(foreign.name());
        return Err(unknown(None, &[], Some(container), 0));
    }
    Expanded::whole(source, limits)
}

#[cfg(feature = "tar")]
pub use compressed::{decode, image_inside};

#[cfg(feature = "tar")]
mod compressed {
    use forerun_disk::{Container, DiskKind, Expanded, PROBE_LEN, payload};
    use forerun_io::ReadAt;
    use forerun_spans::{Compression, IndexOptions};
    use forerun_vfs::Result;

    use crate::identify::{find_format, probe_len};
    use crate::{OpenOptions, spool};

    /// Returns the compression of a file that starts with `head`, if its decoded start may be a
    /// disk, a container or an image. Archives do not count: their driver decodes them itself.
    pub fn image_inside(
        source: &dyn ReadAt,
        head: &[u8],
        wanted: Option<&str>,
    ) -> Option<Compression> {
        let compression = Compression::of(head)?;
        if wanted == Some("tar") {
            return None;
        }
        let len = probe_len().max(PROBE_LEN);
        // The archive driver reports a stream that is damaged at its start.
        let decoded = forerun_spans::head(source, compression, len).ok()?;
        let is_image = match find_format(&decoded, wanted) {
            Some(format) => format.name != "tar" || Compression::of(&decoded).is_some(),
            None => {
                wanted.is_some()
                    || DiskKind::of(&decoded).is_some()
                    || payload::may_contain(&decoded)
            }
        };
        is_image.then_some(compression)
    }

    /// Decodes a whole compressed file, within the limits of `options`.
    ///
    /// # Errors
    /// The errors of [`forerun_spans::decode`].
    pub fn decode(
        source: &dyn ReadAt,
        compression: Compression,
        options: &OpenOptions,
    ) -> Result<Expanded> {
        let decode = IndexOptions {
            limits: options.limits.clone(),
            rescue: options.rescue,
            spool: options.spool.clone().or_else(spool::default),
            ..IndexOptions::default()
        };
        Ok(Expanded {
            container: Container::Compressed(compression.name()),
            source: forerun_spans::decode(source, compression, decode)?,
            volumes: Vec::new(),
        })
    }
}
