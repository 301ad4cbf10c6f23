//! One run of one row by one of the drivers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use forerun_measure::mount::LoopDevice;
use forerun_measure::process::remove;
use forerun_measure::programs::find_program;
use forerun_measure::run::{Run, list};

use super::device::{self, attach};
use super::rows::{ExfatContender, ExfatRow};
use super::volumes;
use crate::bench::comparison::Row as _;
use crate::bench::work::{drop_all, own};
use crate::process;

/// The program, and where its volumes are made.
pub struct ExfatInputs {
    /// Where volumes are made.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    /// Whether it opens the image and no loop device.
    pub on_file: bool,
}

/// Measures a row on a volume of its own, from cold caches.
pub fn measure(inputs: &ExfatInputs, row: ExfatRow, contender: ExfatContender) -> Result<Run> {
    let image = inputs.dir.join("volume.img");
    let run = on_volume(inputs, row, contender, &image);
    remove(&image)?;
    run.with_context(|| format!("{}, {contender}", row.what()))
}

fn on_volume(
    inputs: &ExfatInputs,
    row: ExfatRow,
    contender: ExfatContender,
    image: &Path,
) -> Result<Run> {
    volumes::make(
        image,
        matches!(row, ExfatRow::RemoveBig | ExfatRow::RemovePieces),
    )?;
    fill(inputs, row, image)?;
    let device = attach(image)?;
    let source = match contender {
        ExfatContender::Forerun if inputs.on_file => image,
        _ => device.path(),
    };
    let mount = device::mount(&inputs.forerun, contender, source, row.options())?;
    drop_all()?;
    load_programs(inputs)?;
    if row == ExfatRow::ReadSmallListed {
        list(&mount.path())?;
    }
    let before = device::counted(&device)?;
    let start = Instant::now();
    let found = work(row, contender, &mount.path(), &device)?;
    let seconds = start.elapsed().as_secs_f64();
    let (mut counters, peak) = mount.finish()?;
    device::flush(&device)?;
    let after = device::counted(&device)?;
    for (name, (now, then)) in super::COUNTED.iter().zip(after.iter().zip(before)) {
        counters.insert((*name).to_string(), now.saturating_sub(then));
    }
    drop(device);
    if contender == ExfatContender::Forerun {
        judge(image)?;
    }
    Ok(Run {
        seconds,
        counters,
        peak,
        cpu: None,
        made: None,
        found,
    })
}

/// Has the programs in memory: a removal takes less than it takes to get code that was not used before from the disk.
fn load_programs(inputs: &ExfatInputs) -> Result<()> {
    let other = find_program("mount.exfat-fuse");
    for program in std::iter::once(&inputs.forerun).chain(&other) {
        fs::read(program).with_context(|| program.display().to_string())?;
    }
    Ok(())
}

/// Writes the files that have to be there before, always with forerun.
fn fill(inputs: &ExfatInputs, row: ExfatRow, image: &Path) -> Result<()> {
    if matches!(row, ExfatRow::Write | ExfatRow::Create) {
        return Ok(());
    }
    let mount = device::mount(&inputs.forerun, ExfatContender::Forerun, image, "rw")?;
    let path = mount.path();
    match row {
        ExfatRow::RemoveBig => volumes::big_file(&path, false)?,
        ExfatRow::RemovePieces => volumes::big_file(&path, true)?,
        ExfatRow::Read => drop(volumes::write_file(&path)?),
        ExfatRow::ReadSmall
        | ExfatRow::ReadSmallListed
        | ExfatRow::Remove
        | ExfatRow::RemoveDirsync => drop(volumes::make_tree(&path)?),
        ExfatRow::Write | ExfatRow::Create => {}
    }
    mount.finish()?;
    Ok(())
}

fn work(
    row: ExfatRow,
    contender: ExfatContender,
    mount: &Path,
    device: &LoopDevice,
) -> Result<String> {
    let after_each = || match contender {
        ExfatContender::ExfatFuseFlushed => device::flush(device),
        ExfatContender::Forerun | ExfatContender::ExfatFuse => Ok(()),
    };
    match row {
        ExfatRow::RemoveBig | ExfatRow::RemovePieces => {
            fs::remove_file(mount.join("big"))?;
            after_each()?;
            Ok("removed".to_string())
        }
        ExfatRow::Write => {
            let found = volumes::write_file(mount)?;
            // Not every driver's fsync reaches the device.
            device::flush(device)?;
            Ok(found)
        }
        ExfatRow::Read => volumes::read_file(mount),
        ExfatRow::ReadSmall | ExfatRow::ReadSmallListed => own(&["tree"], mount),
        ExfatRow::Create => {
            let found = volumes::make_tree(mount)?;
            device::flush(device)?;
            Ok(found)
        }
        ExfatRow::Remove | ExfatRow::RemoveDirsync => volumes::remove_tree(mount, &after_each),
    }
}

fn judge(image: &Path) -> Result<()> {
    let said = process::output(Command::new("fsck.exfat").arg("-n").arg(image))?;
    ensure!(said.contains("clean"), "fsck.exfat: {said}");
    Ok(())
}
