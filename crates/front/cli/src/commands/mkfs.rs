//! `forerun mkfs`: makes an empty volume on a block device or in a file.
//!
//! Unlike `pack --force`, which replaces any output, this command first checks what would be lost.
//! It locks a device while writing it, as every writer of a volume does.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum, ValueHint};
use forerun::build::{BuildError, ExfatOptions, ImageOutput, Tree};
use forerun::unstable::locks::Locking;
use forerun::unstable::{contents, locks};
use forerun::{Observer, ReadAt, Writer};
use forerun_io::{BlockDevice, FileDevice};
use forerun_sandbox::Sandbox;

use super::pack::{ClusterArgs, VolumeArgs, unfit};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt;
use crate::patience::patiently;
use crate::size;
use crate::target::Target;

/// Make an empty volume on a device or in a file
///
/// The volume fills the device or existing file; --size creates a new file. A device or file that is not
/// empty is refused without --force. Free space of a device is not written: old data stays there until
/// files replace it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun mkfs exfat --label CARD /dev/sdb1
  forerun mkfs exfat --size 32G card.img")]
pub struct MkfsArgs {
    /// Format of the volume
    #[arg(value_name = "FORMAT")]
    pub format: VolumeFormat,
    /// Block device or file
    #[arg(value_name = "DEVICE|FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Size of the volume [default: the size of the device or file]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// Volume label, at most 11 characters
    #[arg(short = 'L', long, value_name = "NAME")]
    pub label: Option<String>,
    /// Overwrite a device or file that is not empty
    #[arg(long)]
    pub force: bool,
    /// Allocation unit, a power of two from a sector to 32M [default: 4K for volumes up to 256M, 32K up to
    /// 32G, 128K above]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub cluster_size: Option<u64>,
    #[command(flatten)]
    pub volume: VolumeArgs,
}

/// The formats of volumes that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VolumeFormat {
    /// Read and written by cameras, cars, Windows, macOS and Linux
    Exfat,
}

pub fn run(context: &Context, args: &MkfsArgs) -> Result {
    let path = &args.output;
    let named = |failure: Failure| failure.of(path.display());
    let is_there = match path.metadata() {
        Ok(metadata) => Some(metadata.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(named(Failure::output(&error))),
    };
    interrupt::defer();
    match is_there {
        Some(kind) if kind.is_block_device() => on_device(context, args).map_err(named),
        Some(kind) if kind.is_file() => {
            let device = open(args).map_err(named)?;
            in_file(context, args, Some(device.len()))
        }
        Some(_) => {
            let message = "is neither a file nor a block device";
            Err(named(Failure::new(Exit::Output, "output", message)))
        }
        None => in_file(context, args, None),
    }
}

/// Opens the existing output for writing, with a writer's lock, and checks its contents.
fn open(args: &MkfsArgs) -> Result<locks::Held<FileDevice>> {
    let path = &args.output;
    let failed = |error: forerun::vfs::Error| match error {
        forerun::vfs::Error::Io { len: 0, source, .. } if source.raw_os_error().is_some() => {
            Failure::output(&source)
        }
        error => Failure::from(error),
    };
    let device = patiently(path, || locks::blank(path, Locking::Respect)).map_err(failed)?;
    match contents(&device).map_err(failed)? {
        Some(what) if !args.force => {
            let message = format!("holds {what}, which would be lost");
            let failure = Failure::new(Exit::Output, "exists", message);
            Err(failure.hint("--force overwrites it"))
        }
        Some(_) | None => Ok(device),
    }
}

/// Makes the volume in a new file, which replaces the old one when it is complete.
fn in_file(context: &Context, args: &MkfsArgs, len: Option<u64>) -> Result {
    let size = match args.size.or(len.filter(|&len| len > 0)) {
        Some(size) => size,
        None => {
            let failure = Failure::usage("missing --size").of(args.output.display());
            return Err(failure.hint("give the size, as in --size 32G"));
        }
    };
    let writer = writer(args, size, ExfatOptions::default().sector_size)?;
    let mut target = Target::create(&args.output, len.is_some(), "a volume")?;
    context.confine(&target.sandbox(Sandbox::new()));
    write(context, &writer, target.file()).map_err(|failure| failure.of(&target.name))?;
    target.commit()?;
    Ok(Exit::Ok)
}

fn on_device(context: &Context, args: &MkfsArgs) -> Result {
    let device = open(args)?;
    let len = device.len();
    let size = args.size.unwrap_or(len);
    if size > len {
        let len = size::exact(len);
        return Err(Failure::usage(format!(
            "--size {size} reaches past the end at {len}"
        )));
    }
    let writer = writer(args, size, device.sector_size())?;
    context.confine(&Sandbox::new());
    let mut out = DeviceOutput {
        device: &device,
        position: 0,
        zeros: 0,
    };
    write(context, &writer, &mut out)?;
    let finished = out.finish().and_then(|()| device.flush());
    finished.map_err(|error| Failure::output(&error))?;
    Ok(Exit::Ok)
}

fn writer(args: &MkfsArgs, size: u64, sector: u32) -> Result<Writer> {
    let VolumeFormat::Exfat = args.format;
    let cluster = ClusterArgs {
        cluster_size: args.cluster_size,
        label: args.label.clone(),
    };
    let options = args.volume.options(&cluster, sector)?;
    let options = ExfatOptions {
        size: Some(size),
        serial: options.serial.or_else(serial_of_now),
        ..options
    };
    options.validate().map_err(unfit)?;
    Ok(Writer::Exfat(options))
}

/// Returns a serial number that two volumes are unlikely to share. `pack` derives it from the
/// contents, but empty volumes have none.
fn serial_of_now() -> Option<u32> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let seconds = u32::try_from(since.as_secs() & u64::from(u32::MAX)).ok()?;
    Some(seconds ^ since.subsec_nanos().rotate_left(2))
}

fn write(context: &Context, writer: &Writer, out: &mut dyn ImageOutput) -> Result<()> {
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let written = writer.write(&Tree::default(), out, &observer);
    written.map(drop).map_err(|error| match error {
        BuildError::Format { .. } => Failure::from(error).hint("--size BYTES makes it larger"),
        error => error.into(),
    })
}

/// A device to which a volume is written. Zeros at the end of the volume are free space, so only
/// the part that may belong to a used cluster is written.
struct DeviceOutput<'d> {
    device: &'d dyn BlockDevice,
    position: u64,
    /// Zeros before the position that are not yet written.
    zeros: u64,
}

const MAX_CLUSTER: u64 = 32 << 20;

impl DeviceOutput<'_> {
    fn write_zeros(&mut self, mut len: u64) -> io::Result<()> {
        let zeros = vec![0; 1 << 20];
        while len > 0 {
            let part = usize::try_from(len).unwrap_or(usize::MAX).min(zeros.len());
            let part = zeros.get(..part).unwrap_or(&zeros);
            self.device.write_all_at(self.position, part)?;
            let written = size::count_of(part.len());
            self.position += written;
            len -= written;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let zeros = std::mem::take(&mut self.zeros).min(MAX_CLUSTER);
        self.write_zeros(zeros)
    }
}

impl Write for DeviceOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let zeros = std::mem::take(&mut self.zeros);
        self.write_zeros(zeros)?;
        self.device.write_all_at(self.position, bytes)?;
        self.position += size::count_of(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ImageOutput for DeviceOutput<'_> {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write_all_at(offset, bytes)
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        self.zeros += len;
        Ok(())
    }
}
