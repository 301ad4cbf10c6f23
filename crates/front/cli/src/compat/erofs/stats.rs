//! The statistics of `dump.erofs -S`, and the extents of `-e`.

use std::ops::ControlFlow;

use forerun::Image;
use forerun::vfs::{Extent, FileType, Metadata, NodeId, Place};

use super::dump::{NodeFields, number, on_disk, text};
use crate::error::{Failure, Result};
use crate::output::Output;

/// The ends of names that are counted. The first `.txt` counts; the second is there as in the program.
const SUFFIXES: &[&str] = &[
    ".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf", ".txt",
];
/// Classes of sizes: below 1 KiB, below 2 KiB, and so on; the last has no end.
const CLASSES: usize = 17;
const BAR: usize = 50;

/// Numbers of entries.
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
    /// By suffix; the last has all others.
    suffixes: [u64; SUFFIXES.len() + 1],
}

/// Returns the class of a size.
fn class(bytes: u64) -> usize {
    let kibibytes = bytes >> 10;
    let bits = u64::BITS - kibibytes.leading_zeros();
    usize::try_from(bits).unwrap_or(CLASSES).min(CLASSES - 1)
}

impl Stats {
    fn add(&mut self, path: &[u8], metadata: &Metadata, fields: &NodeFields) {
        match metadata.kind {
            FileType::Regular => self.regular += 1,
            FileType::Directory => self.directories += 1,
            FileType::CharDevice => self.char_devices += 1,
            FileType::BlockDevice => self.block_devices += 1,
            FileType::Fifo => self.fifos += 1,
            FileType::Socket => self.sockets += 1,
            FileType::Symlink => self.symlinks += 1,
        }
        if metadata.kind != FileType::Regular {
            return;
        }
        let stored = on_disk(metadata.size, fields);
        if text(fields, "i_format").contains("compressed") {
            self.compressed += 1;
        }
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

    /// Returns a number of regular files, its share of all and a bar.
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

/// Returns a share with two digits after the point.
#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Two digits after the point are shown.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-nan".to_string(),
        whole => format!("{:.2}", 100.0 * part as f64 / whole as f64),
    }
}

/// Prints the statistics of an image.
pub fn print(image: &Image, out: &mut Output) -> Result<()> {
    let mut stats = Stats::default();
    let fs = image.reader().fs();
    for entry in image.reader().walk(fs.root()) {
        let entry = entry.map_err(|failed| Failure::from(failed.error).at(&failed.path))?;
        let failed = |error| Failure::from(error).at(&entry.path);
        let metadata = entry.metadata.clone().map_err(failed)?;
        let fields = match metadata.kind {
            FileType::Regular => {
                let fields = fs.describe(Some(entry.node)).map_err(failed)?;
                fields.into_iter().collect()
            }
            _ => NodeFields::default(),
        };
        stats.add(&entry.path, &metadata, &fields);
    }
    out.text(stats.lines().join("\n") + "\n")
}

/// Prints the extents of a file that is called `name`.
pub fn print_extents(
    image: &Image,
    out: &mut Output,
    (name, node): (&[u8], NodeId),
    fields: &NodeFields,
) -> Result<()> {
    out.text("\n Ext:   logical offset   |  length :     physical offset    |  length\n")?;
    let mut count = 0_u64;
    let mut failed = Ok(());
    let mut line = |(start, end): (u64, u64), (at, len): (u64, u64)| {
        let logical = end.saturating_sub(start);
        let end_at = at.saturating_add(len);
        let text = format!(
            "{count:>4}: {start:>8}..{end:>8} | {logical:>7} : {at:>10}..{end_at:>10} | {len:>7}\n"
        );
        count += 1;
        text
    };
    let metadata = image.reader().fs().metadata(node)?;
    let format = text(fields, "i_format");
    if format.contains("flat") {
        for (logical, at) in flat(image, metadata.size, fields)? {
            let len = logical.1 - logical.0;
            out.text(line(logical, (at, len)))?;
        }
    } else {
        let fs = image.reader().fs();
        fs.map(node, 0..metadata.size, &mut |extent: Extent| {
            let logical = (extent.logical.start, extent.logical.end);
            let len = logical.1.saturating_sub(logical.0);
            let stored = match extent.place {
                Place::Stored { offset, .. } => (offset, len),
                Place::Encoded { block, .. } => (block.offset, block.len.into()),
                Place::Zero | Place::Inline(_) => return ControlFlow::Continue(()),
            };
            failed = out.text(line(logical, stored));
            match failed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
    }
    failed?;
    out.name(name)?;
    out.text(format!(": {count} extents found\n"))
}

/// A range of a file, and where it begins in the image.
type Flat = ((u64, u64), u64);

/// Returns the extents of a file that lies in one piece, with or without its end behind the inode.
fn flat(image: &Image, size: u64, fields: &NodeFields) -> Result<Vec<Flat>> {
    let superblock: NodeFields = image.reader().fs().describe(None)?.into_iter().collect();
    let bits = number(&superblock, "blkszbits").min(32);
    let format = text(fields, "i_format");
    let in_blocks = match format.contains("inline") {
        true => size >> bits << bits,
        false => size,
    };
    let inode = if format.contains("extended") { 64 } else { 32 };
    let behind = number(fields, "offset")
        .saturating_add(inode)
        .saturating_add(number(fields, "xattr_isize"));
    let start = number(fields, "startblk").saturating_mul(1 << bits);
    let pieces = [((0, in_blocks), start), ((in_blocks, size), behind)];
    let pieces = pieces.into_iter().filter(|((start, end), _)| start < end);
    Ok(pieces.collect())
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
