//! Reads uncompressed archives: headers once and in order, without the data between them.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, KeepIndex, OpenWith, Result};

use crate::header::is_header;
use crate::index::{Index, Pass, Progress};
use crate::kept::Recorder;

/// Contents that only begin like the end of an archive.
const ZEROS: &str = "zeros, and other data behind them";

/// Reads an archive that starts with `head` (a header or less), and stores its index. In rescue
/// mode, the archive ends at the first damage.
pub fn read(
    source: &dyn ReadAt,
    head: &[u8],
    with: &OpenWith,
    (mut pass, keep): (Pass, Option<&dyn KeepIndex>),
) -> Result<Index> {
    let len = source.len();
    let mut recorder = Recorder::new(keep.is_some(), &with.limits);
    let damage = match run(&mut pass, source, head, &mut recorder) {
        Ok(()) => None,
        Err(Error::Corrupt(_)) if !pass.has_headers() && !is_header(head) => {
            return Err(no_archive("data that does not begin with a header"));
        }
        Err(error @ Error::Corrupt(_)) if with.rescue => Some(error),
        Err(error) => return Err(error),
    };
    if let Some(keep) = keep {
        recorder.keep(keep, None, len, None);
    }
    let mut index = pass.finish(damage);
    index.facts.len = index.facts.len.min(len);
    Ok(index)
}

fn run(pass: &mut Pass, source: &dyn ReadAt, head: &[u8], recorder: &mut Recorder) -> Result<()> {
    let source_len = source.len();
    let mut bytes = Vec::new();
    loop {
        let (at, len) = pass.wants();
        let end = at + u64_from(len);
        if end > source_len {
            // Only zeros so far, and less than a header remains.
            if at > 0 && at < source_len && !pass.has_headers() {
                let mut rest = vec![0; usize_from(source_len - at)];
                let read = source.read_exact_at(at, &mut rest);
                read.map_err(|error| Error::io(at, rest.len(), error))?;
                if rest.iter().any(|&byte| byte != 0) {
                    return Err(no_archive(ZEROS));
                }
            }
            return pass.end_of_source(source_len);
        }
        if at == 0 && head.len() == len {
            bytes.clear();
            bytes.extend_from_slice(head);
        } else {
            bytes.resize(len, 0);
            let read = source.read_exact_at(at, &mut bytes);
            read.map_err(|error| Error::io(at, len, error))?;
        }
        let progress = pass.take(&bytes, source_len)?;
        recorder.record(&bytes);
        if progress == Progress::Ended {
            // A file of zeros followed by other data is not an archive.
            let is_archive = pass.has_headers() || pass.wants().0 >= source_len;
            return if is_archive {
                Ok(())
            } else {
                Err(no_archive(ZEROS))
            };
        }
    }
}

/// Returns the error for a file that is no archive.
fn no_archive(found: &str) -> Error {
    Error::UnknownFormat {
        expected: Some("tar".to_string()),
        found: found.to_string(),
    }
}
