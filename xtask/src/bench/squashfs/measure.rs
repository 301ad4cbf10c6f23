//! One run of one row by one of the drivers.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::drivers;
use super::inputs::{MKSQUASHFS, SquashfsInputs};
use super::rows::{SquashfsContender, SquashfsRow};
use crate::bench::caches::drop_all;
use crate::bench::comparison::Row as _;
use crate::bench::run::{Run, cat, four, list, own, watched};
use crate::bench::scratch::Scratch;
use crate::bench::tree::{count, remove};

/// Measures a row, from cold caches.
pub fn measure(
    inputs: &SquashfsInputs,
    row: SquashfsRow,
    contender: SquashfsContender,
) -> Result<Run> {
    let run = match row {
        SquashfsRow::ExtractGzip | SquashfsRow::ExtractZstd => extract(inputs, row, contender),
        SquashfsRow::Pack => pack(inputs, contender),
        SquashfsRow::CatGzip
        | SquashfsRow::CatZstd
        | SquashfsRow::Tree
        | SquashfsRow::TreeFour
        | SquashfsRow::Ls
        | SquashfsRow::LsCached
        | SquashfsRow::Random => mounted(inputs, row, contender),
    };
    run.with_context(|| format!("{}, {contender}", row.what()))
}

fn mounted(inputs: &SquashfsInputs, row: SquashfsRow, contender: SquashfsContender) -> Result<Run> {
    let mount = drivers::mount(contender, &inputs.forerun, &inputs.image(row))?;
    let path = mount.path();
    if row == SquashfsRow::LsCached {
        list(&path)?;
    } else {
        drop_all()?;
    }
    let start = Instant::now();
    let found = match row {
        SquashfsRow::CatGzip | SquashfsRow::CatZstd => cat(&path.join("file"))?,
        SquashfsRow::Tree => own(&["tree"], &path)?,
        SquashfsRow::TreeFour => four(&path)?,
        SquashfsRow::Ls | SquashfsRow::LsCached => list(&path)?,
        SquashfsRow::Random => own(&["random"], &path.join("file"))?,
        SquashfsRow::ExtractGzip | SquashfsRow::ExtractZstd | SquashfsRow::Pack => {
            bail!("needs no mount")
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    if matches!(row, SquashfsRow::Tree | SquashfsRow::TreeFour) {
        let expected = inputs.tree.found();
        ensure!(found == expected, "read {found}, not {expected}");
    }
    let (counters, peak) = mount.finish()?;
    Ok(Run {
        seconds,
        counters,
        peak,
        made: None,
        found,
    })
}

fn extract(inputs: &SquashfsInputs, row: SquashfsRow, contender: SquashfsContender) -> Result<Run> {
    let scratch = Scratch::new(&inputs.dir)?;
    let (image, out) = (inputs.image(row), scratch.path().join("extracted"));
    let mut command = match contender {
        SquashfsContender::Forerun => {
            let mut command = Command::new(&inputs.forerun);
            // Special bits and devices, as unsquashfs makes them for root without being asked.
            command.args([
                "extract",
                "--quiet",
                "--stats",
                "--special-bits",
                "--devices",
            ]);
            command.arg("-C").arg(&out).arg(&image);
            command
        }
        _ => {
            let mut command = Command::new("unsquashfs");
            command.args(["-quiet", "-no-progress", "-dest"]);
            command.arg(&out).arg(&image);
            command
        }
    };
    let mut run = watched(&mut command)?;
    let (files, bytes) = count(&out)?;
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
    let mut run = watched(&mut command)?;
    run.made = Some(out.metadata()?.len());
    remove(&out)?;
    Ok(run)
}
