//! Differences in metadata.

use std::collections::BTreeMap;

use forerun_vfs::{FileType, Metadata, VolumeInfo};

use super::entry::Entry;
use super::{Change, DiffOptions, Side};

/// The properties to compare: requested by the options and supported by both sides.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    pub modes: Modes,
    pub owners: bool,
    pub mtimes: bool,
    pub links: bool,
    pub xattrs: bool,
    pub owners_kept: bool,
    /// Whether both sides store comparable times.
    pub times_kept: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    All,
    /// Only whether any user can execute a regular file.
    Executable,
    None,
}

impl Keeps {
    pub fn of(left: Side<'_>, right: Side<'_>, options: &DiffOptions) -> Self {
        let volume = |side| match side {
            Side::Image(reader) => Some(reader.fs().volume()),
            Side::Directory(_) => None,
        };
        let sides = [volume(left), volume(right)];
        let all = |keeps: fn(&VolumeInfo) -> bool| sides.into_iter().flatten().all(keeps);
        let owners_kept = all(|volume| volume.has_owners);
        // Formats without owners also have coarser times.
        let times_kept = owners_kept && all(|volume| volume.has_times);
        let modes = match (options.ignore_mode, owners_kept) {
            (true, _) => Modes::None,
            (false, true) => Modes::All,
            (false, false) => Modes::Executable,
        };
        Self {
            modes,
            owners: owners_kept && !options.ignore_owner,
            mtimes: times_kept && !options.ignore_mtime,
            links: !options.ignore_links,
            // Formats without owners have no extended attributes either.
            xattrs: owners_kept && !options.ignore_xattrs,
            owners_kept,
            times_kept,
        }
    }
}

/// Compares everything except contents and extended attributes.
pub fn entries(old: &Entry, new: &Entry, keeps: &Keeps, changes: &mut Vec<Change>) {
    let (left, right) = (&old.metadata, &new.metadata);
    if left.kind != right.kind {
        changes.push(Change::Kind(left.kind, right.kind));
        return;
    }
    if keeps.modes.differ(left, right) {
        changes.push(Change::Mode(left.mode, right.mode));
    }
    let owner = |metadata: &Metadata| (metadata.uid, metadata.gid);
    if keeps.owners && owner(left) != owner(right) {
        changes.push(Change::Owner(owner(left), owner(right)));
    }
    if keeps.mtimes && mtimes_differ(left, right) {
        changes.push(Change::Mtime(left.mtime, right.mtime));
    }
    if left.kind == FileType::Regular && left.size != right.size {
        changes.push(Change::Size(left.size, right.size));
    }
    if old.target != new.target {
        changes.push(Change::Target(old.target.clone(), new.target.clone()));
    }
    if left.device != right.device {
        changes.push(Change::Device(left.device, right.device));
    }
    if keeps.links && old.first != new.first {
        let first = |entry: &Entry| entry.first.as_ref().map(|path| path.to_vec());
        changes.push(Change::Link(first(old), first(new)));
    }
}

pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn xattrs(old: &Xattrs, new: &Xattrs, changes: &mut Vec<Change>) {
    for (name, value) in old {
        let other = new.get(name);
        if other != Some(value) {
            let value = Some(value.clone());
            changes.push(Change::Xattr(name.clone(), value, other.cloned()));
        }
    }
    for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        changes.push(Change::Xattr(name.clone(), None, Some(value.clone())));
    }
}

impl Modes {
    fn differ(self, left: &Metadata, right: &Metadata) -> bool {
        let executable = |metadata: &Metadata| metadata.mode & 0o111 != 0;
        match (self, left.kind) {
            // The mode of symbolic links is meaningless.
            (Self::None, _) | (_, FileType::Symlink) => false,
            (Self::All, _) => left.mode != right.mode,
            (Self::Executable, FileType::Regular) => executable(left) != executable(right),
            (Self::Executable, _) => false,
        }
    }
}

/// Compares two times. A time without a fraction is compared in whole seconds, because its side may
/// store no fractions.
const fn mtimes_differ(left: &Metadata, right: &Metadata) -> bool {
    let (left, right) = (left.mtime, right.mtime);
    let both = left.nanoseconds != 0 && right.nanoseconds != 0;
    left.seconds != right.seconds || (both && left.nanoseconds != right.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_vfs::{Device, Timestamp};

    fn file(mode: u16, seconds: i64, nanoseconds: u32) -> Metadata {
        Metadata {
            kind: FileType::Regular,
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 1,
            mtime: Timestamp {
                seconds,
                nanoseconds,
            },
            device: Device::default(),
        }
    }

    #[test]
    fn modes() {
        for (modes, left, right, expected) in [
            (Modes::All, 0o644, 0o600, true),
            (Modes::All, 0o644, 0o644, false),
            (Modes::Executable, 0o644, 0o600, false),
            (Modes::Executable, 0o755, 0o644, true),
            (Modes::None, 0o755, 0o644, false),
        ] {
            let (left, right) = (file(left, 0, 0), file(right, 0, 0));
            assert_eq!(modes.differ(&left, &right), expected, "{modes:?}");
        }
    }

    #[test]
    fn fractions_count_where_both_sides_have_them() {
        for (left, right, expected) in [
            ((1, 0), (1, 0), false),
            ((1, 0), (2, 0), true),
            ((1, 5), (1, 0), false),
            ((1, 0), (1, 5), false),
            ((1, 5), (1, 6), true),
        ] {
            let of = |(seconds, nanoseconds)| file(0, seconds, nanoseconds);
            assert_eq!(mtimes_differ(&of(left), &of(right)), expected);
        }
    }

    #[test]
    fn attributes_that_are_missing_differ() {
        let of = |pairs: &[(&str, &str)]| -> Xattrs {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect()
        };
        let mut changes = Vec::new();
        let old = of(&[("same", "1"), ("other", "1"), ("gone", "1")]);
        let new = of(&[("same", "1"), ("other", "2"), ("new", "")]);
        xattrs(&old, &new, &mut changes);
        let one = || Some(b"1".to_vec());
        assert_eq!(
            changes,
            [
                Change::Xattr(b"gone".to_vec(), one(), None),
                Change::Xattr(b"other".to_vec(), one(), Some(b"2".to_vec())),
                Change::Xattr(b"new".to_vec(), None, Some(Vec::new())),
            ]
        );
    }
}
