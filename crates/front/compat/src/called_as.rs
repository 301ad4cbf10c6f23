//! Names of other programs. forerun acts as such a program when it is started through a link with
//! that name.
//!
//! This module has only the names; `compat` implements the programs.

use std::ffi::OsString;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Squashfuse,
    SquashfuseLl,
    Unsquashfs,
    Mksquashfs,
    Sqfstar,
    MkfsErofs,
    FsckErofs,
    DumpErofs,
    ErofsFuse,
    MkComposefs,
    MountComposefs,
    ComposefsInfo,
    MkfsExfat,
    FsckExfat,
    ExfatLabel,
    MountExfat,
}

const NAMES: &[(&str, Program)] = &[
    ("squashfuse", Program::Squashfuse),
    ("squashfuse_ll", Program::SquashfuseLl),
    ("unsquashfs", Program::Unsquashfs),
    ("mksquashfs", Program::Mksquashfs),
    ("sqfstar", Program::Sqfstar),
    ("mkfs.erofs", Program::MkfsErofs),
    ("fsck.erofs", Program::FsckErofs),
    ("dump.erofs", Program::DumpErofs),
    ("erofsfuse", Program::ErofsFuse),
    ("mkcomposefs", Program::MkComposefs),
    ("mount.composefs", Program::MountComposefs),
    ("composefs-info", Program::ComposefsInfo),
    ("mkfs.exfat", Program::MkfsExfat),
    ("fsck.exfat", Program::FsckExfat),
    ("exfatlabel", Program::ExfatLabel),
    ("mount.exfat", Program::MountExfat),
    ("mount.exfat-fuse", Program::MountExfat),
];

/// Returns the program that `argv[0]` names, or `None` for forerun itself.
pub fn program(argv: &[OsString]) -> Option<Program> {
    let name = Path::new(argv.first()?).file_name()?;
    let found = NAMES.iter().find(|(known, _)| name == *known);
    found.map(|(_, program)| *program)
}
