//! The statistics of `dump.erofs -S`, and the extents of `-e`.

use std::ops::ControlFlow;

use forerun::Image;
use forerun::vfs::{FileType, Metadata, NodeId};

use super::dump::{driver, on_disk};
use crate::error::{Failure, Result};
use crate::output::Output;

/// Suffixes of names that are counted. Only the first `.txt` counts; the second one is a quirk of
/// the original.
const SUFFIXES: &[&str] = &[
    ".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf", ".txt",
];
/// Size classes: below 1 KiB, below 2 KiB, and so on; the last has no upper limit.
const CLASSES: usize = 17;
const BAR: usize = 50;

#[derive(Default)]
struct Stats {
    regular: u64,
    directories: u64,
    char_devices: u64,
    block_devices: u64,
    fifos: u64,
    sockets: u64,
    symlinks: u64,
    compressed: u64,
    original_bytes: u64,
    stored_bytes: u64,
    original: [u64; CLASSES],
    stored: [u64; CLASSES],
    /// Counts by suffix; the last one counts all other names.
    suffixes: [u64; SUFFIXES.len() + 1],
}

/// The statistics of a regular file.
struct File {
    /// Bytes that the file occupies in the image.
    stored: u64,
    is_compressed: bool,
}

fn class(bytes: u64) -> usize {
    let kibibytes = bytes >> 10;
    let bits = u64::BITS - kibibytes.leading_zeros();
    usize::try_from(bits).unwrap_or(CLASSES).min(CLASSES - 1)
}

impl Stats {
    fn add(&mut self, path: &[u8], metadata: &Metadata, file: Option<File>) {
        match metadata.kind {
            FileType::Regular => self.regular += 1,
            FileType::Directory => self.directories += 1,
            FileType::CharDevice => self.char_devices += 1,
            FileType::BlockDevice => self.block_devices += 1,
            FileType::Fifo => self.fifos += 1,
            FileType::Socket => self.sockets += 1,
            FileType::Symlink => self.symlinks += 1,
        }
        let Some(File {
            stored,
            is_compressed,
        }) = file
        else {
            return;
        };
        self.compressed += u64::from(is_compressed);
        self.original_bytes = self.original_bytes.saturating_add(metadata.size);
        self.stored_bytes = self.stored_bytes.saturating_add(stored);
        let ends = |suffix: &&str| path.ends_with(suffix.as_bytes());
        let suffix = SUFFIXES.iter().position(ends).unwrap_or(SUFFIXES.len());
        for (counts, index) in [
            (self.original.as_mut_slice(), class(metadata.size)),
            (self.stored.as_mut_slice(), class(stored)),
            (self.suffixes.as_mut_slice(), suffix),
        ] {
            if let Some(count) = counts.get_mut(index) {
                *count += 1;
            }
        }
    }

    fn total(&self) -> u64 {
        self.regular
            + self.directories
            + self.char_devices
            + self.block_devices
            + self.fifos
            + self.sockets
            + self.symlinks
    }

    fn lines(&self) -> Vec<String> {
        let counted = |what: &str, count: u64| format!("Filesystem {what} count:\t\t{count}");
        let total = self.total();
        let mut lines = vec![
            counted("total file", total),
            counted("unknown type", 0),
            counted("regular file", self.regular),
            counted("directory", self.directories),
            counted("char dev", self.char_devices),
            counted("block dev", self.block_devices),
            counted("FIFO file", self.fifos),
            counted("SOCK file", self.sockets),
            counted("symlink file", self.symlinks),
            format!("{:<40}{}", "Filesystem compressed files:", self.compressed),
            format!(
                "{:<40}{}",
                "Filesystem uncompressed files:",
                total - self.compressed
            ),
            format!(
                "{:<40}{} Bytes",
                "Filesystem total original file size:", self.original_bytes
            ),
            format!(
                "{:<40}{} Bytes",
                "Filesystem total file size:", self.stored_bytes
            ),
            format!(
                "{:<40}{}%",
                "Filesystem compress rate:",
                percent(self.stored_bytes, self.original_bytes)
            ),
        ];
        lines.extend(self.classes("Original file size", &self.original));
        lines.extend(self.classes("On-disk file size", &self.stored));
        lines.push("\nFile type distribution:".to_string());
        lines.push(head("type                  "));
        let names = SUFFIXES.iter().chain(&["others"]);
        let rows = names.zip(&self.suffixes);
        lines.extend(rows.map(|(name, count)| format!("{name:<17}\t{}", self.row(*count))));
        lines
    }

    fn classes(&self, title: &str, counts: &[u64; CLASSES]) -> Vec<String> {
        let mut lines = vec![
            format!("\n{title} distribution:"),
            head(">=(KB) .. <(KB)       "),
        ];
        for (index, count) in counts.iter().enumerate() {
            let start = if index == 0 { 0 } else { 1_u64 << (index - 1) };
            let end = match index {
                index if index == CLASSES - 1 => String::new(),
                index => (1_u64 << index).to_string(),
            };
            lines.push(format!("{start:>6} .. {end:<6}\t{}", self.row(*count)));
        }
        lines
    }

    /// Returns a row with a number of regular files, its share of all files, and a bar.
    fn row(&self, count: u64) -> String {
        let share = percent(count, self.regular);
        let width = u64::try_from(BAR).unwrap_or(0);
        let filled = (count * width).checked_div(self.regular).unwrap_or(0);
        let bar = "#".repeat(usize::try_from(filled).unwrap_or(BAR));
        format!("{count:<10}{share:>10}% |{bar:<BAR$}|")
    }
}

fn head(first: &str) -> String {
    format!("{first} count            ratio |{:<BAR$}|", "distribution")
}

/// Formats a share as a percentage with two decimals.
#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Two digits after the point are shown.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-nan".to_string(),
        whole => format!("{:.2}", 100.0 * part as f64 / whole as f64),
    }
}

pub fn print(image: &Image, out: &mut Output) -> Result<()> {
    let mut stats = Stats::default();
    let erofs = driver(image)?;
    let fs = image.reader().fs();
    for entry in image.reader().walk(fs.root()) {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        let failed = |error| Failure::from(error).at(&entry.path);
        let metadata = entry.metadata.clone().map_err(failed)?;
        let file = match metadata.kind {
            FileType::Regular => {
                let facts = erofs.inode(entry.node).map_err(failed)?;
                Some(File {
                    stored: on_disk(erofs, metadata.size, &facts),
                    is_compressed: facts.compressed_blocks.is_some(),
                })
            }
            _ => None,
        };
        stats.add(&entry.path, &metadata, file);
    }
    out.text(stats.lines().join("\n") + "\n")
}

/// Prints the extents of a file with the name `name`.
pub fn print_extents(image: &Image, out: &mut Output, (name, node): (&[u8], NodeId)) -> Result<()> {
    out.text("\n Ext:   logical offset   |  length :     physical offset    |  length\n")?;
    let (mut count, mut at) = (0_u64, 0);
    let mut printed = Ok(());
    driver(image)?.stored_extents(node, &mut |extent| {
        let (start, end) = (extent.logical.start, extent.logical.end);
        let logical = end - start;
        // Like the original, prints the previous offset for an extent without one.
        let len = extent.physical.map_or(logical, |physical| {
            at = physical.start;
            physical.end - physical.start
        });
        let end_at = at.saturating_add(len);
        let device = match extent.device {
            0 => String::new(),
            device => format!("  # device {device}"),
        };
        printed = out.text(format!(
            "{count:>4}: {start:>8}..{end:>8} | {logical:>7} : {at:>10}..{end_at:>10} | {len:>7}{device}\n"
        ));
        count += 1;
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    printed?;
    out.name(name)?;
    out.text(format!(": {count} extents found\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_sizes() {
        for (bytes, expected) in [
            (0, 0),
            (1023, 0),
            (1024, 1),
            (2047, 1),
            (2048, 2),
            (32 << 20, 16),
            (u64::MAX, 16),
        ] {
            assert_eq!(class(bytes), expected, "{bytes}");
        }
    }
}
