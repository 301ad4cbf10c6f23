//! `--partition`: turns the number of a partition into an offset and a size.
//!
//! The table, like the first bytes of an image, is read before the process enters its sandbox,
//! because the location of a volume decides which locks are taken.

use forerun::ReadAt;
use forerun::unstable::disk::partitions::{PartitionTable, TablePartition, partition_table};
use forerun_io::FileSource;

use crate::args::{ImageArgs, is_stdin};
use crate::context::image_name;
use crate::error::{Failure, Result};
use crate::escape::printable;
use crate::exit::Exit;
use crate::remote::is_remote;
use crate::size;

/// Returns the arguments with offset and size of the partition of `source` that they name, if any.
/// Refuses arguments that make sense for layers only.
pub fn place(args: &ImageArgs, source: &dyn ReadAt) -> Result<ImageArgs> {
    crate::layer_count::refuse_first(&args.source.remote)?;
    let mut args = args.clone();
    if let Some(number) = args.source.partition.take() {
        let partition = find(source, number, args.source.rescue)?;
        args.source.offset = partition.offset;
        args.source.size = Some(partition.len);
    }
    Ok(args)
}

/// Returns the arguments with offset and size of the partition, for commands that open the file by
/// its name.
pub fn placed(args: &ImageArgs) -> Result<ImageArgs> {
    if args.source.partition.is_none() || is_stdin(&args.image) || is_remote(&args.image) {
        return Ok(args.clone());
    }
    let named = |failure: Failure| failure.of(image_name(args));
    let source = FileSource::open(&args.image).map_err(|error| named(Failure::source(&error)))?;
    place(args, &source).map_err(named)
}

fn is_inside(partition: &TablePartition, disk_len: u64, is_start_enough: bool) -> bool {
    let end = partition.offset.checked_add(partition.len);
    end.is_some_and(|end| end <= disk_len || is_start_enough && partition.offset < disk_len)
}

/// Finds a partition by its number. A rescue accepts a partition of which an incomplete copy of the
/// disk has only the start.
pub fn find(source: &dyn ReadAt, number: u32, is_rescue: bool) -> Result<TablePartition> {
    let Some(table) = partition_table(source)? else {
        let failure = Failure::new(Exit::Format, "no_partitions", "has no partition table");
        return Err(failure.hint("forerun scan IMAGE shows the offsets of images in it"));
    };
    let mut partitions = table.partitions.iter();
    match partitions.find(|partition| partition.number == number) {
        Some(partition) if !is_inside(partition, table.disk_len, is_rescue) => {
            let end = size::exact(table.disk_len);
            let message = format!("partition {number} reaches past the end at {end}");
            Err(Failure::new(Exit::Image, "partition", message)
                .hint("the copy may be incomplete: copy the image again, or read the rest with --salvage (mount: -o salvage)"))
        }
        Some(partition) => Ok(TablePartition {
            len: partition.len.min(table.disk_len - partition.offset),
            ..partition.clone()
        }),
        None => {
            let message = format!(
                "has no partition {number}; it has these: {}",
                listed(&table)
            );
            Err(Failure::new(Exit::Image, "partition", message))
        }
    }
}

/// Lists the partitions, as in `1 (Linux, 4.0 MiB at 1048576)`.
pub fn listed(table: &PartitionTable) -> String {
    const SHOWN: usize = 32;
    let shown = table.partitions.iter().take(SHOWN).map(|partition| {
        let size = size::human(partition.len);
        let name = printable(&partition.type_name);
        format!(
            "{} ({name}, {size} at {})",
            partition.number, partition.offset
        )
    });
    let mut shown: Vec<_> = shown.collect();
    if table.partitions.len() > SHOWN {
        shown.push(format!("{} more", table.partitions.len() - SHOWN));
    }
    if shown.is_empty() {
        "none".to_string()
    } else {
        shown.join(", ")
    }
}
