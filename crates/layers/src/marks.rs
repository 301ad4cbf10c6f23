//! The extended attributes of overlayfs on a node: whether it is opaque, where its lower part is,
//! and whether its contents are in a lower layer.

use forerun_vfs::{Corrupt, Error, OverlayAttribute, Result};

use crate::check::MarkerCheck;
use crate::ids::LayerNode;
use crate::stack::Stack;
use crate::whiteout::OPAQUE;

/// Longest path in a redirect, as for any path.
pub const PATH_MAX: usize = 4096;

/// The attributes of a node that overlayfs reads.
#[derive(Debug, Default)]
pub struct Marks {
    opaque: Option<u8>,
    redirect: Option<Redirect>,
    /// Whether only the metadata of a file is in this layer.
    pub is_metacopy: bool,
}

/// Where the lower part of a node is, if not at the path of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Another name in the same directory.
    Sibling(Vec<u8>),
    /// The names of a path from the root of the lower layers.
    Path(Vec<Vec<u8>>),
}

impl Redirect {
    /// Parses the value of the attribute, by the rules of Linux.
    fn parse(value: &[u8]) -> Option<Self> {
        // Linux reads the value as a string.
        let value = value.split(|&byte| byte == 0).next().unwrap_or_default();
        let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
        if value.len() > PATH_MAX {
            return None;
        }
        if let Some(path) = value.strip_prefix(b"/") {
            let names: Vec<_> = path
                .split(|&byte| byte == b'/')
                .map(<[u8]>::to_vec)
                .collect();
            return names
                .iter()
                .all(|name| is_name(name))
                .then_some(Self::Path(names));
        }
        let is_sibling = is_name(value) && !value.contains(&b'/');
        is_sibling.then(|| Self::Sibling(value.to_vec()))
    }
}

/// Returns whether Linux accepts this value of `metacopy`: empty, or a header with a digest.
fn is_metacopy(value: &[u8]) -> bool {
    match value {
        [] => true,
        [0, len, 0, _, ..] => usize::from(*len) == value.len(),
        _ => false,
    }
}

impl Stack {
    /// Returns the marks of a node.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a value that overlayfs does not accept, and the errors of the layer.
    pub fn marks(&self, at: LayerNode) -> Result<Marks> {
        let mut marks = Marks::default();
        let mut refused = None;
        self.xattrs(at, &mut |name, value| match OverlayAttribute::of(name) {
            Some(OverlayAttribute::Own(b"opaque")) => marks.opaque = value.first().copied(),
            Some(OverlayAttribute::Own(b"redirect")) => match Redirect::parse(value) {
                Some(redirect) => marks.redirect = Some(redirect),
                None => {
                    let value = String::from_utf8_lossy(value).into_owned();
                    refused = Some(MarkerCheck::Redirect { value });
                }
            },
            Some(OverlayAttribute::Own(b"metacopy")) => {
                marks.is_metacopy = true;
                if !is_metacopy(value) {
                    refused = Some(MarkerCheck::Metacopy { len: value.len() });
                }
            }
            Some(OverlayAttribute::Own(_) | OverlayAttribute::Nested(..)) | None => {}
        })?;
        match refused {
            None => Ok(marks),
            Some(check) => Err(self.failed(at, check)),
        }
    }

    pub fn failed(&self, at: LayerNode, check: MarkerCheck) -> Error {
        let layer = self.layer(at.layer);
        let format = layer.map_or("layers", |layer| layer.fs.volume().format);
        let error = Error::from(Corrupt::new(format, Some(at.node), 0, check));
        layer.map_or(error.clone(), |layer| error.in_image(&layer.name))
    }

    /// Returns whether a directory hides everything that lower layers have at its path.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has whiteouts of overlayfs in an unknown form, and the errors
    /// of [`marks`](Self::marks).
    pub fn is_opaque(&self, dir: LayerNode) -> Result<bool> {
        let marks = self.marks(dir)?;
        if marks.opaque == Some(b'x') {
            let what = format!(
                "directory {} with whiteouts by attribute of overlayfs",
                dir.node
            );
            return self.call(dir, |_, _| Err(Error::Unsupported(what)));
        }
        Ok(marks.opaque == Some(b'y') || self.lookup(dir, OPAQUE)?.is_some())
    }

    /// Returns where the lower part of a directory or file is, if not at the same path.
    pub fn redirect(&self, at: LayerNode) -> Result<Option<Redirect>> {
        // The lowest layer has nothing below it.
        if at.layer == 0 {
            return Ok(None);
        }
        let marks = self.marks(at)?;
        if marks.redirect.is_none() || marks.opaque == Some(b'y') {
            return Ok(None);
        }
        let is_dir = self.is_dir(at)?;
        Ok(if is_dir && self.lookup(at, OPAQUE)?.is_some() {
            None
        } else {
            marks.redirect
        })
    }

    /// Returns the redirect of a directory. Ignores damage, which readers of the directory report.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn redirect_if_sound(&self, at: LayerNode) -> Result<Option<Redirect>> {
        match self.redirect(at) {
            Err(error @ Error::Io { .. }) => Err(error),
            found => Ok(found.unwrap_or(None)),
        }
    }

    /// Refuses a directory whose redirect leads to no directory, because part of it would be
    /// missing.
    pub fn expect_no_redirect(&self, dir: LayerNode) -> Result<()> {
        match self.redirect(dir)? {
            // The root never moves, and a redirect of a file only concerns its contents.
            Some(redirect) if !self.is_root(dir) && self.is_dir(dir)? => {
                let value = match redirect {
                    Redirect::Sibling(name) => name,
                    Redirect::Path(names) => [b"/", names.join(&b'/').as_slice()].concat(),
                };
                let value = String::from_utf8_lossy(&value).into_owned();
                Err(self.failed(dir, MarkerCheck::Nowhere { value }))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_a_name_or_a_path_from_the_root() {
        let path = |names: &[&str]| {
            let names = names.iter().map(|name| name.as_bytes().to_vec());
            Some(Redirect::Path(names.collect()))
        };
        for (value, expected) in [
            (&b"a"[..], Some(Redirect::Sibling(b"a".to_vec()))),
            (b"/a/b", path(&["a", "b"])),
            (b"/a/b\0", path(&["a", "b"])),
            (b"", None),
            (b"/", None),
            (b"/a/", None),
            (b"//a", None),
            (b"a/b", None),
            (b"..", None),
            (b"/a/../b", None),
        ] {
            assert_eq!(Redirect::parse(value), expected, "{value:?}");
        }
        assert_eq!(Redirect::parse(&[b'a'; 5000]), None);
    }

    #[test]
    fn values_of_metacopy() {
        for (value, expected) in [
            (&b""[..], true),
            (&[0, 4, 0, 0], true),
            (&[0, 6, 0, 1, 7, 7], true),
            (&[0, 5, 0, 1, 7, 7], false),
            (&[1, 4, 0, 0], false),
            (&[0], false),
        ] {
            assert_eq!(is_metacopy(value), expected, "{value:?}");
        }
    }
}
