//! Listings of `unsquashfs`: paths below the target directory, with or without attributes.

use forerun::vfs::{DirCursor, FileSystem, FileType, Metadata, NodeId};
use forerun_export::Selected;
use jiff::tz::TimeZone;
use std::ops::ControlFlow;

use crate::columns::{mode, time};
use crate::error::Result;
use crate::names::Names;
use crate::output::Output;

/// The form of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListForm {
    #[default]
    Short,
    /// With attributes and owner names.
    Long,
    /// With attributes and owner numbers.
    Numeric,
}

/// Width of owner, group and size, with the slash and the space between them.
const OWNERS_AND_SIZE: usize = 27;

/// The format of a listing.
pub struct Style {
    pub form: ListForm,
    /// The directory that prefixes the listed paths.
    pub dest: Vec<u8>,
    pub names: Names,
    pub zone: TimeZone,
}

pub fn write(out: &mut Output, fs: &dyn FileSystem, style: &Style, entry: &Selected) -> Result<()> {
    let metadata = &entry.metadata;
    let is_link = metadata.kind == FileType::Symlink;
    if style.form != ListForm::Short {
        out.text(attributes(metadata, style))?;
        out.text(" ")?;
    }
    let path = match entry.path.as_slice() {
        b"" => style.dest.clone(),
        path => [style.dest.as_slice(), path].join(&b'/'),
    };
    out.name(&path)?;
    if style.form != ListForm::Short && is_link {
        out.text(" -> ")?;
        out.name(&fs.read_link(entry.node)?)?;
    }
    out.text("\n")
}

/// Formats mode, owners, size or device, and time.
fn attributes(metadata: &Metadata, style: &Style) -> String {
    let owner = |name: Option<&str>, id: u32| match name {
        Some(name) if style.form == ListForm::Long => name.to_string(),
        _ => id.to_string(),
    };
    let user = owner(style.names.user(metadata.uid), metadata.uid);
    let group = owner(style.names.group(metadata.gid), metadata.gid);
    let owners = format!("{user}/{group} ");
    let width = OWNERS_AND_SIZE.saturating_sub(owners.len());
    let size = match metadata.kind {
        FileType::BlockDevice | FileType::CharDevice => {
            let (major, minor) = (metadata.device.major, metadata.device.minor);
            let width = width.saturating_sub(4);
            format!("{major:>width$},{minor:3}")
        }
        _ => format!("{:>width$}", metadata.size),
    };
    let mode = mode(metadata.kind, metadata.mode);
    let time = time(metadata.mtime, &style.zone);
    format!("{mode} {owners}{size} {time}")
}

pub fn is_empty(fs: &dyn FileSystem, dir: NodeId) -> Result<bool> {
    let mut is_empty = true;
    fs.read_dir(dir, DirCursor::START, &mut |_| {
        is_empty = false;
        ControlFlow::Break(())
    })?;
    Ok(is_empty)
}
