//! One run of one row by one of the drivers.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use forerun_measure::process::remove;
use forerun_measure::run::{Run, list, timed, watched};
use forerun_measure::scratch::Scratch;

use super::drivers;
use super::inputs::{BLOCK, MKSQUASHFS, SquashfsInputs};
use super::rows::{SquashfsContender, SquashfsRow};
use crate::bench::comparison::Row as _;
use crate::bench::decoded::Frames;
use crate::bench::from_memory::TreeInMemory;
use crate::bench::tree::{BIG_LEN, count};
use crate::bench::work::{NOBODY, cat, drop_all, four, own, until_stored};

/// Measures a row, from cold caches.
pub fn measure(
    inputs: &SquashfsInputs,
    row: SquashfsRow,
    contender: SquashfsContender,
) -> Result<Run> {
    let run = match row {
        SquashfsRow::ExtractGzip | SquashfsRow::ExtractZstd | SquashfsRow::ExtractUser => {
            extract(inputs, row, contender)
        }
        SquashfsRow::Pack => pack(inputs, contender),
        SquashfsRow::AppImage => {
            let appimages = inputs.appimages.as_ref().context("no AppImages")?;
            appimages.measure(contender)
        }
        SquashfsRow::Import | SquashfsRow::ImportSource => {
            let modules = inputs.modules.as_ref().context("no modules")?;
            modules.measure(inputs, row, contender)
        }
        SquashfsRow::CatGzip
        | SquashfsRow::CatZstd
        | SquashfsRow::Tree
        | SquashfsRow::TreeZstd
        | SquashfsRow::TreeFour
        | SquashfsRow::Ls
        | SquashfsRow::LsCached
        | SquashfsRow::Random
        | SquashfsRow::RandomZstd => mounted(inputs, row, contender),
    };
    run.with_context(|| format!("{}, {contender}", row.what()))
}

fn mounted(inputs: &SquashfsInputs, row: SquashfsRow, contender: SquashfsContender) -> Result<Run> {
    let image = inputs.image(row);
    match contender {
        SquashfsContender::Decoded => {
            return decoded(&image, |frames| Ok(frames.pass(BIG_LEN)?.to_string()));
        }
        SquashfsContender::DecodedWhereAsked => {
            return decoded(&image, |frames| frames.random(BIG_LEN));
        }
        _ => {}
    }
    let mount = drivers::mount(contender, &inputs.forerun, &image)?;
    let path = mount.path();
    if row == SquashfsRow::LsCached {
        list(&path)?;
    } else {
        drop_all()?;
    }
    let start = Instant::now();
    let found = match row {
        SquashfsRow::CatGzip | SquashfsRow::CatZstd => cat(&path.join("file"))?,
        SquashfsRow::Tree | SquashfsRow::TreeZstd => own(&["tree"], &path)?,
        SquashfsRow::TreeFour => four(&path)?,
        SquashfsRow::Ls | SquashfsRow::LsCached => list(&path)?,
        SquashfsRow::Random | SquashfsRow::RandomZstd => own(&["random"], &path.join("file"))?,
        SquashfsRow::ExtractGzip
        | SquashfsRow::ExtractZstd
        | SquashfsRow::ExtractUser
        | SquashfsRow::Pack
        | SquashfsRow::AppImage
        | SquashfsRow::Import
        | SquashfsRow::ImportSource => bail!("is measured otherwise"),
    };
    let seconds = start.elapsed().as_secs_f64();
    if matches!(
        row,
        SquashfsRow::Tree | SquashfsRow::TreeZstd | SquashfsRow::TreeFour
    ) {
        let expected = inputs.tree.found();
        ensure!(found == expected, "read {found}, not {expected}");
    }
    let (counters, peak) = mount.finish()?;
    Ok(Run {
        seconds,
        counters,
        peak,
        found,
        ..Run::default()
    })
}

/// Does some work with the blocks of the large file, without a mount.
fn decoded(image: &Path, work: impl FnOnce(&Frames) -> Result<String>) -> Result<Run> {
    let frames = Frames::of(image, BLOCK)?;
    drop_all()?;
    let (seconds, found) = timed(|| work(&frames))?;
    Ok(Run {
        seconds,
        found,
        ..Run::default()
    })
}

/// Runs to the end, from cold caches.
fn cold(command: &mut Command) -> Result<Run> {
    drop_all()?;
    watched(command)
}

fn extract(inputs: &SquashfsInputs, row: SquashfsRow, contender: SquashfsContender) -> Result<Run> {
    let scratch = Scratch::new(&inputs.dir)?;
    let (image, out) = (inputs.image(row), scratch.path().join("extracted"));
    let mut command = match contender {
        SquashfsContender::FromMemory | SquashfsContender::DecodedAndWritten => {
            let tree = TreeInMemory::read(&inputs.tree.path)?;
            let decodes = contender == SquashfsContender::DecodedAndWritten;
            let frames = decodes.then(|| Frames::of(&image, BLOCK)).transpose()?;
            drop_all()?;
            let (seconds, ()) = timed(|| tree.write(&out, frames.as_ref()))?;
            let run = Run {
                seconds,
                ..Run::default()
            };
            return all_extracted(inputs, until_stored(run, &out)?, &out);
        }
        SquashfsContender::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            command.args(["extract", "--quiet", "--stats", "--sync"]);
            if !row.is_by_user() {
                // As unsquashfs makes them for root without being asked.
                command.args(["--special-bits", "--devices"]);
            }
            command.arg("-C").arg(&out).arg(&image);
            command
        }
        _ => {
            let peer = drivers::peer(contender).context("extracts nothing")?;
            let command = peer.extract(&drivers::place(&image), &out);
            command.context("extracts nothing")?
        }
    };
    if row.is_by_user() {
        chown(scratch.path(), Some(NOBODY), Some(NOBODY))?;
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    all_extracted(inputs, until_stored(cold(&mut command)?, &out)?, &out)
}

/// Checks that all of the tree is there.
fn all_extracted(inputs: &SquashfsInputs, mut run: Run, out: &Path) -> Result<Run> {
    let (files, bytes) = count(out)?;
    run.found = format!("{files} {bytes}");
    let expected = inputs.tree.found();
    ensure!(run.found == expected, "{}, not {expected}", run.found);
    Ok(run)
}

fn pack(inputs: &SquashfsInputs, contender: SquashfsContender) -> Result<Run> {
    let out = inputs.dir.join("packed.img");
    remove(&out)?;
    let mut command = match contender {
        SquashfsContender::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            command.args(["pack", "--quiet", "--stats", "--format", "squashfs"]);
            command.arg(&inputs.tree.path).arg(&out);
            command
        }
        _ => {
            let mut command = Command::new("mksquashfs");
            command.arg(&inputs.tree.path).arg(&out).args(MKSQUASHFS);
            command.args(["-comp", "gzip"]);
            command
        }
    };
    let mut run = cold(&mut command)?;
    run.made = Some(out.metadata()?.len());
    remove(&out)?;
    Ok(run)
}
