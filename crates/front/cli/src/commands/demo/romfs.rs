//! romfs: a large file read by requests of 1 KiB, as the Linux driver does without `largeblocks`, against
//! large requests, and against the image itself read as a file.

use forerun::build::RomfsOptions;
use forerun::{EngineOptions, Writer};
use forerun_io::Counter;

use super::measure::{Kit, LEGACY_TIME, ReadWay, in_image, plain};
use super::model::{DemoPart, PartName, RowRole};
use crate::error::{Failure, Result};
use crate::size;

/// Returns the bytes of the file.
pub const fn file_len(size: u64) -> u64 {
    size
}

/// Describes the part.
pub fn begin(kit: &Kit) -> DemoPart {
    let len = size::human(file_len(kit.size));
    let what = format!("Reads a file of {len} in an image to its end, as md5sum does.");
    DemoPart::new(PartName::Romfs, what)
}

/// Measures it.
pub fn measure(kit: &Kit, part: &mut DemoPart) -> Result<()> {
    let len = file_len(kit.size);
    let md5 = kit.data.md5(len)?;
    let image = kit.place.path("image.romfs");
    let options = RomfsOptions {
        align: 4096,
        ..RomfsOptions::default()
    };
    kit.data.pack(&Writer::Romfs(options), &image, len)?;
    let image_len = image
        .metadata()
        .map_err(|error| Failure::source(&error).of(image.display()))?
        .len();
    let ours = || in_image(kit, &image, &ReadWay::ours());
    // The better of two runs: a single hiccup of the disk would decide the comparison otherwise.
    let whole = plain(kit, &image, image_len)?;
    let reading = ours()?;
    let whole = whole.better(plain(kit, &image, image_len)?);
    let reading = reading.better(ours()?);
    reading.verify(&md5)?;
    let legacy = ReadWay {
        engine: EngineOptions {
            large_blocks: false,
            ..EngineOptions::default()
        },
        kernel_readahead: false,
        patience: Some(LEGACY_TIME),
        ..ReadWay::ours()
    };
    let slow = in_image(kit, &image, &legacy)?;
    slow.verify(&md5)?;
    let counter = Counter::SourceRequests;
    part.rows = vec![
        slow.row(
            "nolargeblocks",
            RowRole::Legacy,
            "legacy: 1 KiB at a time",
            counter,
        ),
        reading.row(
            "largeblocks",
            RowRole::Ours,
            "forerun: large blocks",
            counter,
        ),
        whole.row(
            "image",
            RowRole::Reference,
            "the image itself, as a file",
            counter,
        ),
    ];
    part.notes.push(
        "forerun mount -o nolargeblocks is the legacy way. Requests: reads of the image. The better of \
         two runs, but for the legacy way."
            .to_string(),
    );
    super::remove(&image);
    Ok(())
}
