//! Extraction in the manner of `unsquashfs`: its output before and after, and the errors that stop
//! it.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forerun::Image;
use forerun::build::XattrFilter;
use forerun::vfs::{FileType, Held};
use forerun_export::{
    ExportError, ExtractOptions, ExtractReport, Found, Loss, Owners, Shortfall, extract, visit,
};

use super::listing::{self, Style};
use super::options::UnsquashCall;
use super::{DONE, Ended, FATAL, IN_PART, Stop, choose, complain, selection, unopened};
use crate::confine::capabilities;
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::in_one_line;
use crate::interrupt::{self, Graceful};
use crate::output::Output;
use crate::pattern::Syntax;
use crate::place::OutputDir;
use crate::progress::Progress;
use crate::source::PreparedImage;

#[derive(Default)]
struct Planned {
    /// Entries other than directories.
    inodes: u64,
    /// Blocks of files. Each file counts once.
    blocks: u64,
    devices: u64,
    fifos: u64,
    sockets: u64,
    /// Directories in the root of the image.
    top: Vec<Vec<u8>>,
}

pub fn run(
    context: &Context,
    call: &UnsquashCall,
    syntax: Syntax,
    prepared: PreparedImage,
    style: Style,
) -> Ended {
    let shown = call.image.as_deref().unwrap_or_default().to_string_lossy();
    let dest = call
        .dest
        .as_deref()
        .map_or(Path::new("squashfs-root"), Path::new);
    let place = make(dest)?;
    let [include, exclude] =
        [&call.xattrs_include, &call.xattrs_exclude].map(|expression| expression.as_deref());
    let xattr_filter = XattrFilter::new(include, exclude).map_err(Failure::from)?;
    let options = options(call, place.is_new(), xattr_filter);
    interrupt::defer();
    let graceful = Graceful::new(Arc::clone(&options.stop));
    let sandbox = place.sandbox(prepared.sandbox());
    context.confine(&sandbox.keep(capabilities(&options)));
    let opened = context.open_prepared(prepared, None);
    let image = match opened {
        Ok(image) => image,
        Err(failure) => {
            place.take_back();
            return Err(unopened(failure, &shown));
        }
    };
    let selection = match choose(call, syntax, &image) {
        Ok(choice) => selection(Arc::new(choice)),
        Err(stop) => {
            place.take_back();
            return Err(stop);
        }
    };
    let mut out = Output::stdout()?;
    // This extra walk runs only if its counts are printed or used.
    let planned = if call.quiet && call.force {
        Planned::default()
    } else {
        plan(&image, &selection)?
    };
    if !call.quiet {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = call.processors.map_or(threads, usize::from);
        let plural = if threads == 1 { "" } else { "s" };
        out.line(format!(
            "Parallel unsquashfs: Using {threads} processor{plural}"
        ))?;
        let Planned { inodes, blocks, .. } = planned;
        out.line(format!("{inodes} inodes ({blocks} blocks) to write\n"))?;
    }
    if !call.force {
        refuse_existing(dest, &planned, &mut out)?;
    }
    if call.info.is_some() {
        list(&image, &selection, &style, &mut out)?;
    }
    out.finish()?;
    let progress = Progress::new(context, "extracting", 0);
    let report = extract(image.reader(), &selection, dest, &options, &progress);
    drop(progress);
    let report = report.map_err(Failure::from)?;
    drop(graceful);
    let code = tell(&report, dest);
    if !call.quiet {
        out.text(summary(&report, &planned))?;
        out.finish()?;
    }
    Ok(code)
}

/// Creates the target directory, but not its parents.
fn make(dest: &Path) -> std::result::Result<OutputDir, Stop> {
    let failed = |error: io::Error| {
        let (dest, why) = (dest.display(), reason(&error));
        Stop::Fatal(format!(
            "dir_scan: failed to make directory {dest}, because {why}"
        ))
    };
    let above = dest.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        above.metadata().map_err(failed)?;
    }
    OutputDir::make(dest).map_err(failed)
}

fn options(call: &UnsquashCall, is_new: bool, xattr_filter: XattrFilter) -> ExtractOptions {
    let is_root = rustix::process::geteuid().is_root();
    ExtractOptions {
        // An existing regular file is replaced even without `-force`.
        force: true,
        devices: true,
        special_bits: true,
        umask_of_files: !is_root,
        root_attributes: true,
        owners: if is_root {
            Owners::Image
        } else {
            Owners::Caller
        },
        no_xattrs: call.no_xattrs,
        xattr_filter,
        time: call.all_time,
        privileged_xattrs: !call.user_xattrs,
        is_new,
        threads: call.processors.map_or(0, usize::from),
        ..ExtractOptions::default()
    }
}

fn plan(image: &Image, selection: &forerun_export::Selection) -> Result<Planned> {
    let reader = image.reader();
    let block = u64::from(reader.fs().volume().block_size.max(1));
    let mut planned = Planned::default();
    let mut seen = HashSet::new();
    let mut held = Held::new(reader.limits());
    visit(reader, selection, &mut |found| {
        let Found::Entry(entry) = found else {
            return Ok(());
        };
        let is_first = entry.metadata.nlink <= 1 || seen.insert(entry.node);
        let hold = |held: &mut Held, bytes| {
            held.add(bytes).map_err(|error| ExportError::Image {
                path: entry.path.clone(),
                source: error,
            })
        };
        if is_first && entry.metadata.nlink > 1 {
            hold(&mut held, 16)?;
        }
        match entry.metadata.kind {
            FileType::Directory => {
                if !entry.path.is_empty() && !entry.path.contains(&b'/') {
                    hold(&mut held, entry.path.len())?;
                    planned.top.push(entry.path);
                }
                return Ok(());
            }
            FileType::Regular if is_first => {
                planned.blocks = planned
                    .blocks
                    .saturating_add(entry.metadata.size.div_ceil(block));
            }
            FileType::BlockDevice | FileType::CharDevice if is_first => planned.devices += 1,
            FileType::Fifo if is_first => planned.fifos += 1,
            FileType::Socket if is_first => planned.sockets += 1,
            _ => {}
        }
        planned.inodes += 1;
        Ok(())
    })?;
    Ok(planned)
}

/// Stops if a directory exists already. Nothing has been written yet.
fn refuse_existing(
    dest: &Path,
    planned: &Planned,
    out: &mut Output,
) -> std::result::Result<(), Stop> {
    use std::os::unix::ffi::OsStrExt;
    for name in &planned.top {
        let path = dest.join(std::ffi::OsStr::from_bytes(name));
        if path.symlink_metadata().is_ok() {
            out.finish()?;
            let path = path.display();
            let text = format!("dir_scan: failed to make directory {path}, because File exists");
            return Err(Stop::Fatal(text));
        }
    }
    Ok(())
}

fn list(
    image: &Image,
    selection: &forerun_export::Selection,
    style: &Style,
    out: &mut Output,
) -> Result<()> {
    let fs = image.reader().fs();
    let mut failed = Ok(());
    visit(image.reader(), selection, &mut |found| {
        if let (Found::Entry(entry), true) = (found, failed.is_ok()) {
            failed = listing::write(out, fs, style, &entry);
        }
        Ok(())
    })?;
    failed
}

fn tell(report: &ExtractReport, dest: &Path) -> u8 {
    for failure in &report.failures {
        complain(&in_one_line(&failure_of(failure)));
    }
    if report.more_failures > 0 {
        complain(&format!("and {} more failures", report.more_failures));
    }
    let lost = report.shortfalls.iter().filter(|lost| lost.error.is_some());
    let lost: Vec<_> = lost.collect();
    for lost in &lost {
        complain(&shortfall(lost, dest));
    }
    match (
        report.stopped || report.interrupted,
        lost.is_empty() && report.failures.is_empty(),
    ) {
        (true, _) => FATAL,
        (false, true) => DONE,
        (false, false) => IN_PART,
    }
}

fn failure_of(error: &ExportError) -> Failure {
    Failure::new(crate::exit::Exit::Partial, "export", error.to_string())
}

fn shortfall(lost: &Shortfall, dest: &Path) -> String {
    let why = lost.error.as_ref().map_or_else(String::new, reason);
    let first = lost
        .examples
        .first()
        .map(|path| String::from_utf8_lossy(path));
    let first = first.unwrap_or_default();
    let what = match lost.loss {
        Loss::Device => "could not create device",
        Loss::HardLink => "could not make the hard link",
        Loss::Owner => "could not change the owner of",
        Loss::Mode | Loss::SpecialBits => "could not change the mode of",
        Loss::Xattr | Loss::PrivilegedXattr => "could not write an extended attribute of",
        Loss::Time => "could not set the time of",
    };
    let more = match lost.count {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    format!("{what} {}/{first}, because {why}{more}", dest.display())
}

/// Returns the lines that count the created entries.
fn summary(report: &ExtractReport, planned: &Planned) -> String {
    // Only devices need special rights.
    let others = planned.fifos + planned.sockets;
    let devices = report.specials.saturating_sub(others).min(planned.devices);
    let lines = [
        (report.files, "file", "files"),
        (report.directories, "directory", "directories"),
        (report.symlinks, "symlink", "symlinks"),
        (devices, "device", "devices"),
        (planned.fifos, "fifo", "fifos"),
        (planned.sockets, "socket", "sockets"),
        (report.hard_links, "hardlink", "hardlinks"),
    ];
    let lines = lines.map(|(count, one, many)| {
        let what = if count == 1 { one } else { many };
        format!("created {count} {what}\n")
    });
    format!("\n{}", lines.concat())
}
