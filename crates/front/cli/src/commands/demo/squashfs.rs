//! SquashFS: a compressed file read page by page. Without readahead and without a cache each page costs
//! a decode of its whole block; forerun decodes each block once. The kernel's own driver is beside them
//! where it can be mounted.

use std::path::Path;

use forerun::build::SquashfsOptions;
use forerun::vfs::Error;
use forerun::{EngineOptions, Image, Writer};
use forerun_io::Counter;
use forerun_kernel::Options;

use super::FILE;
use super::measure::{FileReading, Kit, LEGACY_TIME, ReadWay, by_system, in_image};
use super::model::{DemoPart, PartName, RowRole};
use crate::error::{Result, without_errno};
use crate::interrupt::OnInterrupt;
use crate::size;

/// Bytes of a block, the default of the format's writers.
const BLOCK: u64 = 128 << 10;
/// The part of the largest file (one in so many) that this one has.
const SHARE: u64 = 6;
/// A cache whose part for decoded blocks is too small for one, and that has room for the metadata of one file.
const NO_CACHE: u64 = 160 << 10;
/// Bytes that the kernel requests at a time without readahead; the library is asked for as many.
const PAGE: usize = 4 << 10;

/// Returns the bytes of the file: whole blocks.
pub const fn file_len(size: u64) -> u64 {
    let blocks = size / SHARE / BLOCK;
    if blocks == 0 { BLOCK } else { blocks * BLOCK }
}

/// Describes the part.
pub fn begin(kit: &Kit) -> DemoPart {
    let len = file_len(kit.size);
    let what = format!(
        "Reads a file of {}, which is {} compressed with gzip, to its end.",
        size::human(len),
        size::counted(len / BLOCK, "block of 128 KiB", "blocks of 128 KiB")
    );
    DemoPart::new(PartName::Squashfs, what)
}

/// Measures it.
pub fn measure(kit: &Kit, part: &mut DemoPart) -> Result<()> {
    let len = file_len(kit.size);
    let md5 = kit.data.md5(len)?;
    let image = kit.place.path("image.squashfs");
    let writer = Writer::Squashfs(SquashfsOptions::default());
    kit.data.pack(&writer, &image, len)?;
    let ours = in_image(kit, &image, &ReadWay::ours())?;
    ours.verify(&md5)?;
    let legacy = ReadWay {
        engine: EngineOptions {
            readahead: 0,
            cache: NO_CACHE,
            ..EngineOptions::default()
        },
        kernel_readahead: false,
        piece: PAGE,
        patience: Some(LEGACY_TIME),
    };
    let slow = in_image(kit, &image, &legacy)?;
    slow.verify(&md5)?;
    let counter = Counter::Decodes;
    part.rows = vec![
        slow.row(
            "each_page",
            RowRole::Legacy,
            "legacy: a decode for each page",
            counter,
        ),
        ours.row("once", RowRole::Ours, "forerun: each block once", counter),
    ];
    part.notes.push(
        "Legacy: pages of 4 KiB are asked for one by one, and no decoded block is kept."
            .to_string(),
    );
    match by_kernel(kit, &image, len)? {
        Ok(reading) => {
            reading.verify(&md5)?;
            let row = reading.row("kernel", RowRole::Reference, "Linux's own driver", counter);
            part.rows.push(row);
            let note = "Linux's driver reads through a loop device; nothing counts its decodes.";
            part.notes.push(note.to_string());
        }
        Err(why) => part.left_out.push(format!("Linux's own driver: {why}")),
    }
    super::remove(&image);
    Ok(())
}

/// Reads the file in a mount of the kernel's driver; returns the reason where there can be none.
fn by_kernel(kit: &Kit, path: &Path, len: u64) -> Result<std::result::Result<FileReading, String>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Err("only root can mount with it".to_string()));
    }
    let dir = kit.place.mountpoint()?;
    let image = Image::open(path).map_err(Error::from)?;
    let mount = match forerun_kernel::mount(&image, path, &dir, &Options::default()) {
        Ok(mount) => mount,
        Err(error) => return Ok(Err(without_errno(&error.to_string()))),
    };
    let guard = OnInterrupt::new({
        let dir = dir.clone();
        move || {
            let _ = forerun_kernel::umount(&dir, true);
        }
    });
    let dropped = kit.drop_caches(path);
    let reading = dropped.and_then(|()| by_system(&dir.join(FILE), len));
    let ended = match &mount.entry {
        Some(entry) => forerun_kernel::take_down(entry, true),
        None => Ok(()),
    };
    drop(guard);
    if let Err(error) = ended {
        tracing::warn!("{error}");
    }
    reading.map(Ok)
}
