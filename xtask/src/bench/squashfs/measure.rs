//! One run of one row by one of the drivers.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::drivers;
use super::inputs::{Inputs, MKSQUASHFS};
use super::rows::{Contender, Row};
use crate::bench::caches::drop_all;
use crate::bench::comparison::Row as _;
use crate::bench::run::{Run, cat, four, list, own, watched};
use crate::bench::scratch::Scratch;
use crate::bench::tree::{count, remove};

/// Measures a row, from cold caches.
pub fn measure(inputs: &Inputs, row: Row, contender: Contender) -> Result<Run> {
    let run = match row {
        Row::ExtractGzip | Row::ExtractZstd => extract(inputs, row, contender),
        Row::Pack => pack(inputs, contender),
        Row::CatGzip
        | Row::CatZstd
        | Row::Tree
        | Row::TreeFour
        | Row::Ls
        | Row::LsCached
        | Row::Random => mounted(inputs, row, contender),
    };
    run.with_context(|| format!("{}, {contender}", row.what()))
}

fn mounted(inputs: &Inputs, row: Row, contender: Contender) -> Result<Run> {
    let mount = drivers::mount(contender, &inputs.forerun, &inputs.image(row))?;
    let path = mount.path();
    if row == Row::LsCached {
        list(&path)?;
    } else {
        drop_all()?;
    }
    let start = Instant::now();
    let found = match row {
        Row::CatGzip | Row::CatZstd => cat(&path.join("file"))?,
        Row::Tree => own(&["tree"], &path)?,
        Row::TreeFour => four(&path)?,
        Row::Ls | Row::LsCached => list(&path)?,
        Row::Random => own(&["random"], &path.join("file"))?,
        Row::ExtractGzip | Row::ExtractZstd | Row::Pack => bail!("needs no mount"),
    };
    let seconds = start.elapsed().as_secs_f64();
    if matches!(row, Row::Tree | Row::TreeFour) {
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

fn extract(inputs: &Inputs, row: Row, contender: Contender) -> Result<Run> {
    let scratch = Scratch::new(&inputs.dir)?;
    let (image, out) = (inputs.image(row), scratch.path().join("extracted"));
    let mut command = match contender {
        Contender::Forerun => {
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

fn pack(inputs: &Inputs, contender: Contender) -> Result<Run> {
    let out = inputs.dir.join("packed.img");
    remove(&out)?;
    let mut command = match contender {
        Contender::Forerun => {
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
