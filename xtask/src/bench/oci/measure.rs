//! One run of one piece of work.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};
use forerun_measure::mount::{Access, Mount, Mounted, Other};
use forerun_measure::process::remove;
use forerun_measure::programs::{find_program, has_filesystem};
use forerun_measure::run::{Run, list, timed, watched};

use super::containers::{PROGRAMS, cold};
use super::images::TAG;
use super::inputs::{OciInputs, RATE};
use super::rows::{LayerForm, OciContender, OciRow};
use crate::bench::ondemand::interpreter;
use crate::bench::work::{drop_all, own};
use crate::process;

/// The command that is the first of the image.
const COMMAND: &str = "import json, ssl; print(json.dumps(ssl.OPENSSL_VERSION))";

/// Returns why a competitor cannot take part, if it cannot.
pub fn missing(row: OciRow, contender: OciContender) -> Option<String> {
    let lacks = |programs: &[&str]| {
        let missing = programs.iter().find(|name| find_program(name).is_none());
        missing.map(|name| format!("{name} is not installed"))
    };
    match (row, contender) {
        (OciRow::Container, _) => lacks(&PROGRAMS),
        (_, OciContender::Forerun | OciContender::Pull) => None,
        (_, OciContender::Ratarmount) => lacks(&["ratarmount"]),
        (_, OciContender::Umoci) => lacks(&["umoci", "mksquashfs"]),
        (_, OciContender::Overlayfs | OciContender::Containerd) => {
            (!has_filesystem("overlay")).then(|| "the kernel has no overlay".to_string())
        }
    }
}

/// Measures a row.
pub fn measure(inputs: &OciInputs, row: OciRow, contender: OciContender) -> Result<Run> {
    let run = match (row, contender, row.form()) {
        (_, OciContender::Forerun, Some(form)) => first(inputs, row, form),
        (_, OciContender::Pull, Some(form)) => pull(inputs, form),
        (OciRow::Random, OciContender::Forerun | OciContender::Ratarmount, _) => {
            random(inputs, contender)
        }
        (OciRow::List, OciContender::Forerun | OciContender::Overlayfs, _) => {
            listing(inputs, contender)
        }
        (OciRow::Convert, OciContender::Forerun | OciContender::Umoci, _) => {
            convert(inputs, contender)
        }
        (OciRow::Container, OciContender::Forerun, _) => cold(inputs, "forerun"),
        (OciRow::Container, OciContender::Containerd, _) => cold(inputs, "overlayfs"),
        _ => bail!("{contender} does not take part"),
    }?;
    inputs.had(row, contender, run.peak);
    Ok(run)
}

/// Mounts an image through the link and runs its first command, with a cache that has nothing, or only indexes.
fn first(inputs: &OciInputs, row: OciRow, form: LayerForm) -> Result<Run> {
    let cache = inputs.dir.join("cold-cache");
    remove(&cache)?;
    if row == OciRow::Kept {
        let mut copy = Command::new("cp");
        process::run(copy.arg("-a").arg(inputs.kept_cache()).arg(&cache))?;
    }
    let (_link, name) = inputs.link(form.name(), RATE)?;
    drop_all()?;
    // What is measured is not how the program gets into memory.
    process::output(Command::new(&inputs.forerun).arg("--version"))?;
    let start = Instant::now();
    let arguments = [OsStr::new("--cache-dir"), cache.as_os_str()];
    let address = PathBuf::from(format!("oci://{name}"));
    let mounted = Mounted::with_arguments(&inputs.forerun, &address, Access::ROOT, &arguments)?;
    let found = interpreter::run(&mounted.path(), &[], COMMAND)?;
    let seconds = start.elapsed().as_secs_f64();
    ended(Mount::Forerun(mounted), seconds, found)
}

/// Copies an image through the link. The command is then run where the image was made: to unpack it is not measured.
fn pull(inputs: &OciInputs, form: LayerForm) -> Result<Run> {
    let out = inputs.dir.join("pulled");
    remove(&out)?;
    let (_link, name) = inputs.link(form.name(), RATE)?;
    drop_all()?;
    process::output(Command::new("skopeo").arg("--version"))?;
    let mut copy = Command::new("skopeo");
    copy.args(["copy", "--quiet", "--src-tls-verify=false"]);
    copy.arg(format!("docker://{name}"));
    copy.arg(format!("oci:{}:{TAG}", out.display()));
    let (seconds, _said) = timed(|| process::output(&mut copy))?;
    remove(&out)?;
    let found = interpreter::run(&inputs.layer("python", 1), &[], COMMAND)?;
    Ok(Run {
        seconds,
        found,
        ..Run::default()
    })
}

/// Mounts the archive, whose index is kept, and reads pages of the file in it.
fn random(inputs: &OciInputs, contender: OciContender) -> Result<Run> {
    let (archive, cache) = (inputs.archive(), inputs.dir.join("archive-cache"));
    let index = inputs.dir.join("ratarmount-index");
    let of_index = format!("--index-file={}", index.display());
    let mount = || match contender {
        OciContender::Ratarmount => {
            let arguments = [OsStr::new("-f"), OsStr::new(&of_index), archive.as_os_str()];
            Other::daemon("ratarmount", &arguments).map(Mount::Other)
        }
        _ => {
            // Of reads at random places of 2 GB, no cache of a sensible size holds many.
            let options = ["-o", "cache=32M", "--cache-dir"].map(OsStr::new);
            let arguments = [&options[..], &[cache.as_os_str()]].concat();
            Mounted::with_arguments(&inputs.forerun, &archive, Access::ROOT, &arguments)
                .map(Mount::Forerun)
        }
    };
    // The first mount makes the index.
    let is_made = match contender {
        OciContender::Ratarmount => index.exists(),
        _ => cache.exists(),
    };
    if !is_made {
        mount()?.finish()?;
    }
    drop_all()?;
    process::output(Command::new(&inputs.forerun).arg("--version"))?;
    let start = Instant::now();
    let mounted = mount()?;
    let found = own(&["random"], &mounted.path().join("file"))?;
    ended(mounted, start.elapsed().as_secs_f64(), found)
}

/// Lists the merged layers twice, and measures the second time.
fn listing(inputs: &OciInputs, contender: OciContender) -> Result<Run> {
    let mounted = match contender {
        OciContender::Overlayfs => {
            let layers = [2, 1, 0].map(|number| inputs.layer("many", number));
            Mount::Other(Other::overlay(&layers)?)
        }
        _ => {
            let layout = inputs.layout("many");
            let name = PathBuf::from(format!("oci-layout:{}:{TAG}", layout.display()));
            let cache = inputs.dir.join("list-cache");
            let arguments = [OsStr::new("--cache-dir"), cache.as_os_str()];
            let forerun = &inputs.forerun;
            Mount::Forerun(Mounted::with_arguments(
                forerun,
                &name,
                Access::ROOT,
                &arguments,
            )?)
        }
    };
    list(&mounted.path())?;
    let (seconds, found) = timed(|| list(&mounted.path()))?;
    ended(mounted, seconds, found)
}

/// Converts the image of many files.
fn convert(inputs: &OciInputs, contender: OciContender) -> Result<Run> {
    let (out, bundle) = (inputs.dir.join("converted.sqsh"), inputs.dir.join("bundle"));
    remove(&out)?;
    remove(&bundle)?;
    let layout = format!("{}:{TAG}", inputs.layout("many").display());
    drop_all()?;
    let run = match contender {
        OciContender::Umoci => {
            let mut unpack = Command::new("umoci");
            unpack.args(["unpack", "--image", &layout]);
            let unpacked = watched(unpack.arg(&bundle))?;
            let mut pack = Command::new("mksquashfs");
            pack.arg(bundle.join("rootfs")).arg(&out);
            let packed = watched(pack.args(["-comp", "zstd", "-quiet", "-no-progress"]))?;
            Run {
                seconds: unpacked.seconds + packed.seconds,
                peak: unpacked.peak.max(packed.peak),
                ..Run::default()
            }
        }
        _ => {
            let cache = inputs.dir.join("convert-cache");
            remove(&cache)?;
            let mut convert = Command::new(&inputs.forerun);
            convert.args(["convert", "--quiet", "--format", "squashfs"]);
            convert
                .args(["--compressor", "zstd", "--cache-dir"])
                .arg(&cache);
            convert.arg(format!("oci-layout:{layout}"));
            watched(convert.arg(&out))?
        }
    };
    let said = process::output(Command::new("unsquashfs").arg("-lc").arg(&out))?;
    remove(&bundle)?;
    Ok(Run {
        made: Some(out.metadata()?.len()),
        found: format!("{} names", said.lines().count()),
        ..run
    })
}

/// Unmounts, and returns the run with its counters and the most memory that the server had.
fn ended(mounted: Mount, seconds: f64, found: String) -> Result<Run> {
    let (counters, peak) = mounted.finish()?;
    Ok(Run {
        seconds,
        counters,
        peak,
        cpu: None,
        made: None,
        found,
    })
}
