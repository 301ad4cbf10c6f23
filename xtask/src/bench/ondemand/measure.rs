//! One run of one piece of work.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use forerun_measure::mount::{Mounted, Other};
use forerun_measure::programs::find_program;
use forerun_measure::run::{Run, timed};
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use super::inputs::OndemandInputs;
use super::interpreter;
use super::nydus;
use super::remote::{RATE, link, mount, mount_complete};
use super::rows::{OndemandContender, OndemandImage, OndemandRow};
use crate::bench::work::{drop_all, own};
use crate::process;

/// Returns why a competitor cannot take part, if it cannot.
pub fn missing(row: OndemandRow, contender: OndemandContender) -> Option<String> {
    if row.image() == OndemandImage::Local && find_program("fio").is_none() {
        return Some("fio is not installed".to_string());
    }
    if contender == OndemandContender::Mirror && find_program("bindfs").is_none() {
        return Some("bindfs is not installed".to_string());
    }
    match contender {
        OndemandContender::Nydus | OndemandContender::NydusVerifying => nydus::missing(),
        _ => None,
    }
}

/// Measures a row.
pub fn measure(
    inputs: &OndemandInputs,
    row: OndemandRow,
    contender: OndemandContender,
) -> Result<Run> {
    match (row, contender) {
        (
            OndemandRow::Sequential
            | OndemandRow::SequentialWarm
            | OndemandRow::Random
            | OndemandRow::Web,
            OndemandContender::Forerun | OndemandContender::Trusting,
        ) => {
            fill(inputs, row.image())?;
            let options: Option<OsString> = trust(contender).map(Into::into);
            let address = inputs.address(row.image());
            let cache = inputs.complete_cache();
            let mounted = mount(inputs, address, &cache, options.as_slice())?;
            let run = pages(row, contender, &mounted.path().join("file"))?;
            counted(run, mounted)
        }
        (_, OndemandContender::Backing | OndemandContender::SinglePages) => {
            pages(row, contender, &inputs.source(row.image()).join("file"))
        }
        (_, OndemandContender::Mirror) => {
            let mounted = mirror(&inputs.source(row.image()))?;
            pages(row, contender, &mounted.path().join("file"))
        }
        (_, OndemandContender::Nydus | OndemandContender::NydusVerifying) => {
            let (source, dir) = (inputs.source(row.image()), inputs.dir.join("nydus"));
            let mounted = nydus::mount(
                &source,
                &dir,
                contender == OndemandContender::NydusVerifying,
            )?;
            pages(row, contender, &mounted.path().join("file"))
        }
        (_, OndemandContender::Link) => at_link_speed(inputs),
        (OndemandRow::First, _) => first(inputs, contender),
        (OndemandRow::Start, _) => start(inputs, contender),
        _ => bail!("{contender} does not take part"),
    }
}

/// Reads a file in pages, by the program that people do so with.
fn pages(row: OndemandRow, contender: OndemandContender, file: &Path) -> Result<Run> {
    match row {
        OndemandRow::Web => by_dd(file),
        _ => by_fio(row, contender, file),
    }
}

/// Runs dd, and measures it with its start.
fn by_dd(file: &Path) -> Result<Run> {
    let mut dd = Command::new("dd");
    dd.args(["of=/dev/null", "bs=4k"]);
    dd.arg(format!("if={}", file.display()));
    drop_all()?;
    // What is measured is not how the program gets into memory.
    process::output(Command::new("dd").arg("--version"))?;
    let (seconds, output) = timed(|| Ok(dd.output()?))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "dd: {said}");
    let last = said.lines().last().unwrap_or_default();
    let bytes = last.split(' ').next().unwrap_or_default();
    Ok(run_of(seconds, format!("{bytes} bytes")))
}

/// Runs fio as issue reports about this do: one job, synchronous reads of 4 KiB, buffered.
fn by_fio(row: OndemandRow, contender: OndemandContender, file: &Path) -> Result<Run> {
    let mut fio = Command::new("fio");
    fio.args(["--name=pages", "--ioengine=psync", "--bs=4k", "--direct=0"]);
    fio.args([
        "--readonly",
        "--thread",
        "--output-format=json",
        "--invalidate=0",
    ]);
    match row {
        // As many reads as the file has pages, some of them twice: no map of those that were read.
        OndemandRow::Random => fio.args(["--rw=randread", "--norandommap", "--randrepeat=1"]),
        _ => fio.arg("--rw=read"),
    };
    fio.arg(format!("--filename={}", file.display()));
    drop_all()?;
    match (row, contender) {
        (OndemandRow::SequentialWarm | OndemandRow::Random, OndemandContender::SinglePages) => {
            read_in_single_pages(file)?
        }
        (OndemandRow::SequentialWarm | OndemandRow::Random, _) => drop(own(&["files"], file)?),
        _ => {}
    }
    let said = process::output(&mut fio)?;
    // Notes may stand before it.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let json: Value = serde_json::from_str(json).context("output of fio")?;
    let read = &json["jobs"][0]["read"];
    let seconds = read["runtime"].as_f64().context("fio told no runtime")? / 1000.0;
    let bytes = read["io_bytes"].as_u64().context("fio told no bytes")?;
    ensure!(bytes > 0 && json["jobs"][0]["error"] == 0, "fio: {read}");
    Ok(run_of(seconds, format!("{bytes} bytes")))
}

/// Reads a file to its end, like a reader that jumps about: the kernel then takes memory for it page by
/// page, and not in the large pieces in which readahead takes it.
fn read_in_single_pages(path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Returns a run that takes as long as the bytes of the file take at least.
#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Lengths far below 2^53.
fn at_link_speed(inputs: &OndemandInputs) -> Result<Run> {
    let len = inputs
        .source(OndemandImage::Coming)
        .join("file")
        .metadata()?
        .len();
    Ok(run_of(len as f64 / RATE as f64, format!("1 {len}")))
}

/// Reads a file from the start to its end, while none of it is in the cache.
fn first(inputs: &OndemandInputs, contender: OndemandContender) -> Result<Run> {
    let cache = temp_cache(inputs)?;
    let proxy = link(inputs);
    let mode = match contender {
        OndemandContender::Synchronous => "sync",
        _ => "async",
    };
    let options = ["--fetch-ahead", mode].map(OsString::from);
    drop_all()?;
    let mounted = mount(
        inputs,
        proxy.url_of(OndemandImage::Coming.name()),
        cache.path(),
        &options,
    )?;
    let file = mounted.path().join("file");
    let start = Instant::now();
    let found = own(&["files"], &file)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut run = counted(run_of(seconds, found), mounted)?;
    let carried = inputs.carried(OndemandRow::First, contender, &proxy.log())?;
    run.counters.extend(carried);
    Ok(run)
}

/// Starts the interpreter, and measures this with the mounting: files are prefetched from then on.
fn start(inputs: &OndemandInputs, contender: OndemandContender) -> Result<Run> {
    let list = inputs.list();
    if !list.exists() {
        record(inputs)?;
    }
    let cache = temp_cache(inputs)?;
    let proxy = link(inputs);
    let options = match contender {
        OndemandContender::Forerun => vec!["--prefetch".into(), list.into()],
        _ => Vec::new(),
    };
    drop_all()?;
    // What is measured is not how the program gets into memory.
    process::output(Command::new(&inputs.forerun).arg("--version"))?;
    let start = Instant::now();
    let image = OndemandImage::Interpreter;
    let mounted = mount(inputs, proxy.url_of(image.name()), cache.path(), &options)?;
    let said = interpreter::start(&mounted.path(), &[])?;
    let seconds = start.elapsed().as_secs_f64();
    let mut run = counted(run_of(seconds, said), mounted)?;
    let carried = inputs.carried(OndemandRow::Start, contender, &proxy.log())?;
    run.counters.extend(carried);
    Ok(run)
}

/// Records the list during a start without the link.
fn record(inputs: &OndemandInputs) -> Result<()> {
    let cache = temp_cache(inputs)?;
    let list = inputs.list();
    let options = ["--record".into(), list.clone().into()];
    let address = inputs.address(OndemandImage::Interpreter);
    // Else what is in memory of an earlier mount would not be asked for.
    drop_all()?;
    let mounted = mount(inputs, address, cache.path(), &options)?;
    interpreter::start(&mounted.path(), &[])?;
    mounted.finish()?;
    let len = list.metadata().context("no list was recorded")?.len();
    ensure!(len > 0, "the recorded list is empty");
    Ok(())
}

/// Has all of an image in the cache, stored by a process that has ended: what is measured has to verify it again.
fn fill(inputs: &OndemandInputs, image: OndemandImage) -> Result<()> {
    mount_complete(inputs, image)?.finish().map(drop)
}

fn trust(contender: OndemandContender) -> Option<&'static str> {
    (contender == OndemandContender::Trusting).then_some("--trust-cache")
}

/// Mounts a directory through another filesystem in userspace.
fn mirror(dir: &Path) -> Result<Other> {
    let options = ["-f", "-r", "--no-allow-other"].map(OsStr::new);
    Other::daemon("bindfs", &[&options[..], &[dir.as_os_str()]].concat())
}

/// Prepares a cache on the same disk as everything else, which is removed when dropped.
fn temp_cache(inputs: &OndemandInputs) -> Result<TempCache> {
    let path = inputs.dir.join("cold-cache");
    forerun_measure::process::remove(&path)?;
    Ok(TempCache(path))
}

struct TempCache(PathBuf);

impl TempCache {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempCache {
    fn drop(&mut self) {
        let _the_next_run_removes_it = forerun_measure::process::remove(&self.0);
    }
}

fn run_of(seconds: f64, found: String) -> Run {
    Run {
        seconds,
        found,
        ..Run::default()
    }
}

/// Adds to a run what the daemon counted.
fn counted(run: Run, mounted: Mounted) -> Result<Run> {
    let peak = Some(mounted.peak()?);
    let counters = mounted.finish()?;
    Ok(Run {
        counters,
        peak,
        ..run
    })
}
