//! The extended attributes of overlayfs.
//!
//! A directory that served as an upper layer may hold files without their contents: overlayfs
//! copied up only the metadata, and the contents are in a lower layer. Such a file looks like a
//! hole. Drivers refuse to map it, so that no reader takes zeros for its contents.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Corrupt, Error, NodeId, Result};

/// The prefixes of attribute names: for a mount by root, and for a mount with `userxattr`.
const PREFIXES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];
/// Follows one of the prefixes in the name of a nested overlayfs's attribute. overlayfs shows that
/// attribute without this mark.
const NESTED: &[u8] = b"overlay.";

/// An attribute of overlayfs, with its name after the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayAttribute<'n> {
    /// An attribute of the layer itself, which overlayfs does not show.
    Own(&'n [u8]),
    /// An attribute of a nested overlayfs, which is shown under this prefix and name.
    Nested(&'static [u8], &'n [u8]),
}

impl<'n> OverlayAttribute<'n> {
    /// Parses the name of an attribute. Returns `None` if overlayfs does not use it.
    #[must_use]
    pub fn of(name: &'n [u8]) -> Option<Self> {
        let prefix = PREFIXES
            .into_iter()
            .find(|&prefix| name.starts_with(prefix))?;
        let rest = name.strip_prefix(prefix)?;
        Some(match rest.strip_prefix(NESTED) {
            Some(nested) => Self::Nested(prefix, nested),
            None => Self::Own(rest),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its contents are in a lower layer of overlayfs (overlay.metacopy)")]
pub struct ContentsBelow;

/// Number of files to remember as having their contents.
const KEPT: usize = 1024;

/// Tells files that have their contents from files of which overlayfs copied up only the metadata.
pub struct OwnContents {
    /// The numbers of examined files, plus one, at the index of their low bits.
    seen: Box<[AtomicU64]>,
}

impl std::fmt::Debug for OwnContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnContents").finish_non_exhaustive()
    }
}

impl Default for OwnContents {
    fn default() -> Self {
        Self {
            seen: (0..KEPT).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl OwnContents {
    /// Returns whether a file has its contents. `number` identifies its attributes; `xattrs` visits
    /// them unless they were examined recently. Damaged attributes count as none here: their own
    /// readers report them.
    ///
    /// # Errors
    /// [`Error::Io`] of `xattrs`.
    pub fn has(
        &self,
        number: u64,
        xattrs: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<()>,
    ) -> Result<bool> {
        let number = number.wrapping_add(1);
        let places = forerun_io::u64_from(self.seen.len());
        let place = &self.seen[forerun_io::usize_from(number % places)];
        if number != 0 && place.load(Ordering::Relaxed) == number {
            return Ok(true);
        }
        let mut has = true;
        let visited = xattrs(&mut |name, _| {
            has &= OverlayAttribute::of(name) != Some(OverlayAttribute::Own(b"metacopy"));
        });
        if let Err(error @ Error::Io { .. }) = visited {
            return Err(error);
        }
        if has {
            place.store(number, Ordering::Relaxed);
        }
        Ok(has)
    }

    /// Refuses a file that does not [have](Self::has) its contents.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with [`ContentsBelow`], and [`Error::Io`] of `xattrs`.
    pub fn expect(
        &self,
        number: u64,
        format: &'static str,
        node: NodeId,
        xattrs: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<()>,
    ) -> Result<()> {
        if self.has(number, xattrs)? {
            Ok(())
        } else {
            Err(Corrupt::new(format, Some(node), 0, ContentsBelow).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_overlayfs_are_told_from_those_of_one_inside() {
        use OverlayAttribute::{Nested, Own};
        for (name, expected) in [
            (&b"trusted.overlay.opaque"[..], Some(Own(b"opaque"))),
            (b"user.overlay.origin", Some(Own(b"origin"))),
            (
                b"trusted.overlay.overlay.opaque",
                Some(Nested(b"trusted.overlay.", b"opaque")),
            ),
            (b"user.overlayed", None),
            (b"security.overlay.a", None),
        ] {
            assert_eq!(OverlayAttribute::of(name), expected, "{name:?}");
        }
    }

    #[test]
    fn files_without_contents_are_refused_each_time_and_others_looked_at_once() {
        let known = OwnContents::default();
        let mut looks = 0;
        for _ in 0..3 {
            for (number, name) in [(7, &b"user.a"[..]), (7 + 1024, b"trusted.overlay.metacopy")] {
                let expected = known.expect(number, "memfs", NodeId(number), |visit| {
                    looks += 1;
                    visit(name, b"");
                    Ok(())
                });
                assert_eq!(expected.is_ok(), number == 7);
            }
        }
        assert_eq!(looks, 1 + 3);
    }
}
