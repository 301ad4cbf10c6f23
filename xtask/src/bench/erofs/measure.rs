//! One run of one row by one of the drivers.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use forerun_measure::mount::{Mount, Other, Reader};
use forerun_measure::process::remove;
use forerun_measure::run::{Run, list, watched};
use forerun_measure::scratch::Scratch;

use super::drivers;
use super::inputs::{ErofsInputs, MKFS, MKFS_LZ4HC};
use super::rows::{ErofsContender, ErofsImage, ErofsRow};
use crate::bench::comparison::Row as _;
use crate::bench::tree::count;
use crate::bench::work::{cat, drop_all, own, until_stored};
use crate::process;

/// Measures a row, from cold caches except where it is about caches.
pub fn measure(inputs: &ErofsInputs, row: ErofsRow, contender: ErofsContender) -> Result<Run> {
    let run = match row {
        ErofsRow::Extract => extract(inputs, contender),
        ErofsRow::Pack => pack(inputs, contender),
        ErofsRow::LsVia => from_mount(inputs, contender),
        ErofsRow::ObjectSequential | ErofsRow::ObjectRandom
            if contender == ErofsContender::Backing =>
        {
            let (seconds, found) = pages(row, &inputs.big_object()?)?;
            Ok(run_of(seconds, found))
        }
        ErofsRow::Ls
        | ErofsRow::LsOurs
        | ErofsRow::LsZstd
        | ErofsRow::LsCached
        | ErofsRow::ComposefsLs
        | ErofsRow::ComposefsLsCached
        | ErofsRow::Tree
        | ErofsRow::ComposefsTree
        | ErofsRow::Cat
        | ErofsRow::CatLz4hc
        | ErofsRow::CatZstd
        | ErofsRow::Random
        | ErofsRow::RandomLz4hc
        | ErofsRow::ObjectSequential
        | ErofsRow::ObjectRandom => mounted(inputs, row, contender),
    };
    run.with_context(|| format!("{}, {contender}", row.what()))
}

fn run_of(seconds: f64, found: String) -> Run {
    Run {
        seconds,
        found,
        ..Run::default()
    }
}

fn mounted(inputs: &ErofsInputs, row: ErofsRow, contender: ErofsContender) -> Result<Run> {
    let image = row.image().context("needs no mount")?;
    let mount = drivers::mount(contender, inputs, image)?;
    let path = mount.path();
    if matches!(row, ErofsRow::LsCached | ErofsRow::ComposefsLsCached) {
        list(&path)?;
    } else {
        drop_all()?;
    }
    let start = Instant::now();
    let mut seconds = None;
    let found = match row {
        ErofsRow::Ls
        | ErofsRow::LsOurs
        | ErofsRow::LsZstd
        | ErofsRow::LsCached
        | ErofsRow::ComposefsLs
        | ErofsRow::ComposefsLsCached => list(&path)?,
        ErofsRow::Tree | ErofsRow::ComposefsTree => own(&["tree"], &path)?,
        ErofsRow::Cat | ErofsRow::CatLz4hc | ErofsRow::CatZstd => cat(&path.join("file"))?,
        ErofsRow::Random | ErofsRow::RandomLz4hc => own(&["random"], &path.join("file"))?,
        ErofsRow::ObjectSequential | ErofsRow::ObjectRandom => {
            let (warm, found) = pages(row, &path.join("file"))?;
            seconds = Some(warm);
            found
        }
        ErofsRow::LsVia | ErofsRow::Extract | ErofsRow::Pack => bail!("needs no mount"),
    };
    let seconds = seconds.unwrap_or_else(|| start.elapsed().as_secs_f64());
    if matches!(row, ErofsRow::Tree | ErofsRow::ComposefsTree) {
        let expected = inputs.tree.found();
        ensure!(found == expected, "read {found}, not {expected}");
    }
    let (counters, peak) = mount.finish()?;
    Ok(Run {
        seconds,
        counters,
        peak,
        cpu: None,
        made: None,
        found,
    })
}

/// Measures many reads of a file that has been read before, in seconds, and returns what was found too.
fn pages(row: ErofsRow, file: &Path) -> Result<(f64, String)> {
    let work: &[&str] = match row {
        ErofsRow::ObjectRandom => &["pages", "--random"],
        _ => &["pages"],
    };
    cat(file)?;
    let start = Instant::now();
    let found = own(work, file)?;
    Ok((start.elapsed().as_secs_f64(), found))
}

/// Mounts and lists. What is read ahead when an image is mounted would be lost if caches were
/// dropped after that, and would cost nothing if time started after that.
fn from_mount(inputs: &ErofsInputs, contender: ErofsContender) -> Result<Run> {
    let image = ErofsRow::LsVia.image().context("needs an image")?;
    let path = inputs.image(image);
    drop_all()?;
    // As in all other rows, where programs that run are in memory whatever is dropped.
    process::output(Command::new(&inputs.forerun).arg("--version"))?;
    let start = Instant::now();
    let mount = match contender {
        ErofsContender::Forerun => {
            let (mount, _said) = Other::via_kernel(&inputs.forerun, &path, Reader::File, None)?;
            Mount::Other(mount)
        }
        _ => drivers::mount(contender, inputs, image)?,
    };
    let found = list(&mount.path())?;
    let seconds = start.elapsed().as_secs_f64();
    mount.finish()?;
    Ok(run_of(seconds, found))
}

/// Runs to the end, from cold caches.
fn cold(command: &mut Command) -> Result<Run> {
    drop_all()?;
    watched(command)
}

fn extract(inputs: &ErofsInputs, contender: ErofsContender) -> Result<Run> {
    let scratch = Scratch::new(&inputs.dir)?;
    let out = scratch.path().join("extracted");
    let image = inputs.image(ErofsImage::TreeLz4hc);
    let mut command = match contender {
        ErofsContender::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            // Special bits and devices, as fsck.erofs makes them for root without being asked.
            command.args(["extract", "--quiet", "--stats", "--sync"]);
            command.args(["--special-bits", "--devices"]);
            command.arg("-C").arg(&out).arg(&image);
            command
        }
        _ => {
            let mut command = Command::new("fsck.erofs");
            command.arg(format!("--extract={}", out.display()));
            command.arg(&image);
            command
        }
    };
    let mut run = until_stored(cold(&mut command)?, &out)?;
    let (files, bytes) = count(&out)?;
    run.found = format!("{files} {bytes}");
    let expected = inputs.tree.found();
    ensure!(run.found == expected, "{}, not {expected}", run.found);
    Ok(run)
}

fn pack(inputs: &ErofsInputs, contender: ErofsContender) -> Result<Run> {
    let out = inputs.dir.join("packed.img");
    remove(&out)?;
    let mut command = match contender {
        ErofsContender::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            command.args(["pack", "--quiet", "--stats", "--format", "erofs"]);
            // mkfs.erofs of Debian stores equal files each by itself.
            command.args(["--compressor", "lz4hc", "--level", "9", "--no-duplicates"]);
            command.arg(&inputs.tree.path).arg(&out);
            command
        }
        _ => {
            let mut command = Command::new("mkfs.erofs");
            command.arg("--quiet").args(MKFS).arg(MKFS_LZ4HC);
            command.arg(&out).arg(&inputs.tree.path);
            command
        }
    };
    let mut run = cold(&mut command)?;
    run.made = Some(out.metadata()?.len());
    remove(&out)?;
    Ok(run)
}
