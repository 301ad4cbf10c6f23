//! One run of one row by one of the drivers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::device::{Loop, Mounted};
use super::rows::{Contender, Row};
use super::volumes;
use crate::bench::caches::drop_all;
use crate::bench::comparison::Row as _;
use crate::bench::run::Run;
use crate::bench::tree::remove;
use crate::process;

/// The program, and where its volumes are made.
pub struct Inputs {
    /// Where volumes are made.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    /// Whether it opens the image and no loop device.
    pub on_file: bool,
}

/// Measures a row on a volume of its own, from cold caches.
pub fn measure(inputs: &Inputs, row: Row, contender: Contender) -> Result<Run> {
    let image = inputs.dir.join("volume.img");
    let run = on_volume(inputs, row, contender, &image);
    remove(&image)?;
    run.with_context(|| format!("{}, {contender}", row.what()))
}

fn on_volume(inputs: &Inputs, row: Row, contender: Contender, image: &Path) -> Result<Run> {
    volumes::make(image, matches!(row, Row::RemoveBig | Row::RemovePieces))?;
    fill(inputs, row, image)?;
    let device = Loop::attach(image)?;
    let source = match contender {
        Contender::Forerun if inputs.on_file => image,
        _ => &device.path,
    };
    let mount = Mounted::new(&inputs.forerun, contender, source, row.options())?;
    drop_all()?;
    let before = device.counted()?;
    let start = Instant::now();
    let found = work(row, contender, &mount.path(), &device)?;
    let seconds = start.elapsed().as_secs_f64();
    let (mut counters, peak) = mount.finish()?;
    device.flush()?;
    let after = device.counted()?;
    for (name, (now, then)) in super::COUNTED.iter().zip(after.iter().zip(before)) {
        counters.insert((*name).to_string(), now.saturating_sub(then));
    }
    drop(device);
    if contender == Contender::Forerun {
        judge(image)?;
    }
    Ok(Run {
        seconds,
        counters,
        peak,
        made: None,
        found,
    })
}

/// Writes the files that have to be there before, always with forerun.
fn fill(inputs: &Inputs, row: Row, image: &Path) -> Result<()> {
    if matches!(row, Row::Write | Row::Create) {
        return Ok(());
    }
    let mount = Mounted::new(&inputs.forerun, Contender::Forerun, image, "rw")?;
    let path = mount.path();
    match row {
        Row::RemoveBig => volumes::big_file(&path, false)?,
        Row::RemovePieces => volumes::big_file(&path, true)?,
        Row::Read => drop(volumes::write_file(&path)?),
        Row::Remove | Row::RemoveDirsync => drop(volumes::make_tree(&path)?),
        Row::Write | Row::Create => {}
    }
    mount.finish()?;
    Ok(())
}

fn work(row: Row, contender: Contender, mount: &Path, device: &Loop) -> Result<String> {
    let after_each = || match contender {
        Contender::ExfatFuseFlushed => device.flush(),
        Contender::Forerun | Contender::ExfatFuse => Ok(()),
    };
    match row {
        Row::RemoveBig | Row::RemovePieces => {
            fs::remove_file(mount.join("big"))?;
            after_each()?;
            Ok("removed".to_string())
        }
        Row::Write => {
            let found = volumes::write_file(mount)?;
            // Not every driver's fsync reaches the device.
            device.flush()?;
            Ok(found)
        }
        Row::Read => volumes::read_file(mount),
        Row::Create => volumes::make_tree(mount),
        Row::Remove | Row::RemoveDirsync => volumes::remove_tree(mount, &after_each),
    }
}

fn judge(image: &Path) -> Result<()> {
    let said = process::output(Command::new("fsck.exfat").arg("-n").arg(image))?;
    ensure!(said.contains("clean"), "fsck.exfat: {said}");
    Ok(())
}
