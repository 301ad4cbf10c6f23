//! Programs whose names forerun accepts: started through a link with such a name, it behaves like
//! that program.
//!
//! Each program has a file or folder here. It converts the program's command line to a call of the
//! functions behind forerun's own commands, and their results to the program's output and exit
//! codes. Unknown options are refused by name. docs/compat.md lists each option and its effect.

mod bracket;
mod called_as;
mod commands;
mod composefs;
mod erofs;
mod exfat;
mod extended;
mod fuse_words;
mod mksquashfs;
mod names;
mod options;
mod pattern;
mod squashfuse;
mod unsquashfs;

use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use forerun::build::{ImageOptions, Tree};
use forerun_console::{
    archive, args, columns, confine, context, error, escape, exit, interrupt, log, losses, output,
    place, progress, secrets, size, source, stdin, target, values,
};

use archive::Archive;
use args::{Global, Limit, LimitArgs};
use context::Context;
use error::{Failure, reason};
use exit::Exit;
use mksquashfs::Tool;
use squashfuse::Level;

pub use called_as::{Program, program};
pub use commands::{Commands, MountCall, RepairCall, VolumeCall};

/// The command line of a program.
struct Start<'s> {
    /// The first argument: the program, with an optional directory.
    name: &'s OsStr,
    words: &'s [OsString],
    commands: &'s Commands,
}

/// Returns the limits for an archive. The default limits would refuse a sparse file of moderate
/// size because of its length, and these programs have no option for that.
fn archive_limits() -> LimitArgs {
    LimitArgs {
        limits: vec![Limit::TotalBytes(4 << 40)],
    }
}

/// Reads all of an archive but the contents of files. Returns its length in bytes, too. A member
/// that has no place in the tree is an error: these programs have no status for an image that lacks
/// it.
fn read_archive(archive: Archive, options: &ImageOptions) -> error::Result<(Tree, u64)> {
    let name = archive.name();
    let (tree, info) = archive.read(&quiet(), options)?;
    if info.left_out == 0 {
        return Ok((tree, info.image_len));
    }
    let message = info.warnings.join("; ");
    Err(Failure::new(Exit::Source, "left_out", message).of(name))
}

/// Returns the limits for an image without bounds on file sizes: these programs have none, and no
/// option for one.
fn image_limits() -> LimitArgs {
    LimitArgs {
        limits: vec![Limit::TotalBytes(u64::MAX - 1)],
    }
}

/// Runs as a program. Returns the exit status.
pub fn run(program: Program, argv: &[OsString], commands: &Commands) -> u8 {
    let (name, words) = match argv.split_first() {
        Some((name, words)) => (name.as_os_str(), words),
        None => (OsStr::new(""), [].as_slice()),
    };
    name_process(name);
    let start = Start {
        name,
        words,
        commands,
    };
    match program {
        Program::Squashfuse => squashfuse::run(&start, Level::High),
        Program::SquashfuseLl => squashfuse::run(&start, Level::Low),
        Program::Unsquashfs => unsquashfs::run(name, words),
        Program::Mksquashfs => mksquashfs::run(name, words, Tool::Mksquashfs),
        Program::MkfsErofs => erofs::mkfs::run(&start),
        Program::FsckErofs => erofs::fsck::run(name, words),
        Program::MkComposefs => composefs::mkfs::run(words),
        Program::MountComposefs => composefs::mount::run(&start),
        Program::ComposefsInfo => composefs::info::run(words),
        Program::MkfsExfat => exfat::mkfs::run(&start),
        Program::FsckExfat => exfat::fsck::run(&start),
        Program::ExfatLabel => exfat::label::run(&start),
        Program::MountExfat => exfat::mount::run(&start),
        Program::ErofsFuse => erofs::fuse::run(&start),
        Program::DumpErofs => erofs::dump::run(name, words),
        Program::Sqfstar => mksquashfs::run(name, words, Tool::Sqfstar),
    }
}

/// Returns the name of each program with its usage, for the man page.
pub fn usages() -> Vec<(&'static str, String)> {
    use erofs::usage::{DUMP, FSCK, FUSE, MKFS};
    vec![
        ("composefs-info", composefs::info::USAGE.to_string()),
        ("dump.erofs", DUMP.to_string()),
        ("erofsfuse", FUSE.to_string()),
        ("exfatlabel", exfat::label::USAGE.to_string()),
        ("fsck.erofs", FSCK.to_string()),
        ("fsck.exfat", exfat::fsck::USAGE.to_string()),
        ("mkcomposefs", composefs::mkfs::USAGE.to_string()),
        ("mkfs.erofs", MKFS.to_string()),
        ("mkfs.exfat", exfat::mkfs::USAGE.to_string()),
        (
            "mksquashfs",
            mksquashfs::usage::text(Tool::Mksquashfs, "mksquashfs"),
        ),
        ("mount.composefs", composefs::mount::USAGE.to_string()),
        ("mount.exfat", exfat::mount::usage("mount.exfat")),
        ("sqfstar", mksquashfs::usage::text(Tool::Sqfstar, "sqfstar")),
        ("squashfuse", squashfuse::usage_text("squashfuse")),
        ("unsquashfs", unsquashfs::usage::text("unsquashfs")),
    ]
}

/// Begins a run without log output.
fn begin() -> Context {
    log::init(0, false);
    secrets::warn();
    quiet()
}

fn quiet() -> Context {
    Context::new(Global {
        quiet: true,
        ..Global::default()
    })
}

/// Mounts the image. Returns the exit status; `status` converts it to the program's own number.
fn mount(
    commands: &Commands,
    call: &MountCall,
    debug: bool,
    tell: impl FnOnce(&Failure),
    status: impl FnOnce(Exit) -> u8,
) -> u8 {
    let is_in_background = (commands.is_in_background)();
    log::init(debug.into(), false);
    secrets::warn();
    let context = quiet();
    let ended = (commands.mount)(&context, call);
    let exit = ended.unwrap_or_else(|failure| {
        tell(&failure);
        failure.exit
    });
    let exit = context.finish_remotes(exit);
    if is_in_background {
        // The parent, which waits for this process, translates it.
        return exit.code();
    }
    status(exit)
}

/// Sets the process name, by which scripts find the program.
fn name_process(name: &OsStr) {
    let name = Path::new(name).file_name().unwrap_or(name);
    if let Ok(name) = CString::new(name.as_bytes()) {
        // Process lists show 15 bytes. If this fails, they show forerun's name.
        let _stays = rustix::thread::set_name(&name);
    }
}

/// Prints lines to standard error. Escapes terminal control characters, except tabs.
fn complain(lines: &str) {
    for line in lines.split('\n') {
        let parts: Vec<_> = line.split('\t').map(escape::printable).collect();
        let line = parts.join("\t");
        // Without standard error, nothing can be reported.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Reads a list of paths, one per line. Lines that begin with # are comments. The error is a
/// message.
fn path_list(file: &OsStr, kind: &str) -> Result<Vec<Vec<u8>>, String> {
    let text = std::fs::read(file).map_err(|error| {
        let (name, why) = (file.to_string_lossy(), reason(&error));
        format!("FATAL ERROR: Failed to open {kind} file \"{name}\" because {why}")
    })?;
    let lines = text
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    Ok(lines.map(<[u8]>::to_vec).collect())
}

/// Returns subject and message of a failure in one line.
fn in_one_line(failure: &Failure) -> String {
    let subject = failure.subject.iter().map(|subject| format!("{subject}: "));
    let path = failure.path.as_deref().map(escape::escape);
    let path = path.iter().map(|path| format!("{path}: "));
    let place: String = subject.chain(path).collect();
    format!("{place}{}", failure.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use options::Opt;

    /// Checks that docs/compat.md lists each name of a table in the section with this title, and
    /// that the table has each name once.
    fn check<C>(title: &str, tables: &[&[Opt<C>]]) {
        let text = include_str!("../../../../docs/compat.md");
        let (_, text) = text.split_once(&format!("\n## {title}")).unwrap();
        let text = text.split("\n## ").next().unwrap();
        let rows = tables.iter().copied().flatten();
        let names: Vec<_> = rows.flat_map(|row| row.names).collect();
        for name in &names {
            let times = names.iter().filter(|other| other == &name).count();
            assert_eq!(times, 1, "{title}: {name}");
            let name = name.trim_end_matches('*');
            let is_named = match name.as_bytes() {
                // A value may follow without a space.
                [b'-', _] => text.contains(&format!("`{name}")),
                [b'-', ..] if !name.ends_with('=') && name != "--h" => {
                    let mut ends = ["`", " ", "="].iter();
                    ends.any(|end| text.contains(&format!("`{name}{end}")))
                }
                _ => text.contains(name) || name.contains("splice"),
            };
            assert!(is_named, "{title}: {name}");
        }
    }

    #[test]
    fn every_option_is_documented() {
        check("squashfuse", &[fuse_words::TABLE, fuse_words::WORDS]);
        check("erofsfuse", &[erofs::fuse::TABLE]);
        check("unsquashfs", &[unsquashfs::TABLE]);
        check(
            "mksquashfs",
            &[
                mksquashfs::TABLE,
                mksquashfs::MKSQUASHFS,
                mksquashfs::SQFSTAR,
            ],
        );
        check("mkfs.erofs", &[erofs::mkfs::TABLE, erofs::mkfs::EXTENDED]);
        check("fsck.erofs", &[erofs::fsck::TABLE]);
        check("dump.erofs", &[erofs::dump::TABLE]);
        check("mkcomposefs", &[composefs::mkfs::TABLE]);
        check(
            "mount.composefs",
            &[composefs::mount::TABLE, composefs::mount::WORDS],
        );
        check("composefs-info", &[composefs::info::TABLE]);
        check("mkfs.exfat", &[exfat::mkfs::TABLE]);
        check("fsck.exfat", &[exfat::fsck::TABLE]);
        check("exfatlabel", &[exfat::label::TABLE]);
        check("mount.exfat", &[exfat::mount::TABLE, exfat::mount::WORDS]);
    }
}
