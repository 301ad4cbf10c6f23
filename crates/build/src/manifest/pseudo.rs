//! Applies lines for the `mksquashfs` options `-p` and `-pf`. A line that cannot be applied is
//! reported and ignored.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use forerun_io::Limits;
use forerun_vfs::Timestamp;

use super::super::line::{LineError, is_blank, lossy};
use super::super::{BuildError, Content, HostFile, NewNode, NodeIndex, NodeKind, Tree};
use super::parse::{Action, Attributes, Line, Make, parse};
use super::{Manifest, Step, display};

/// Rules for applying the lines.
pub struct PseudoRules<'r> {
    /// The time of entries whose line gives none.
    pub now: Timestamp,
    /// A line may create the root directory.
    pub makes_root: bool,
    /// The source directory of the tree, for messages.
    pub source: &'r Path,
    /// Only the limits of entries and depth are used.
    pub limits: &'r Limits,
    /// Receives a message for each ignored line.
    pub told: &'r mut dyn FnMut(String),
}

impl std::fmt::Debug for PseudoRules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PseudoRules")
            .field("now", &self.now)
            .field("makes_root", &self.makes_root)
            .finish_non_exhaustive()
    }
}

/// A sequence of definitions to apply.
pub struct PseudoDefinitions<'t> {
    manifest: Manifest<'t>,
}

impl std::fmt::Debug for PseudoDefinitions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PseudoDefinitions").finish_non_exhaustive()
    }
}

/// The state of `mksquashfs` definitions.
pub(super) struct Pseudo<'m> {
    pub(super) now: Timestamp,
    makes_root: bool,
    source: &'m Path,
    told: &'m mut dyn FnMut(String),
    /// The attributes of directories that no line lists.
    pub(super) dir: Option<Attributes>,
    /// Entries that a line created.
    pub(super) made: HashSet<NodeIndex>,
    /// Number of entries before the first line.
    found: usize,
}

impl<'t> PseudoDefinitions<'t> {
    /// Begins to change `tree`.
    pub fn new(tree: &'t mut Tree, rules: PseudoRules<'t>) -> Self {
        let pseudo = Pseudo {
            now: rules.now,
            makes_root: rules.makes_root,
            source: rules.source,
            told: rules.told,
            dir: None,
            made: HashSet::new(),
            found: tree.len(),
        };
        // Host paths are relative to the working directory.
        let mut manifest = Manifest::new(tree, rules.limits, Path::new(""));
        manifest.pseudo = Some(pseudo);
        Self { manifest }
    }

    /// Applies one line. Fails with [`LineError`] for an invalid line.
    pub fn line(&mut self, line: &[u8]) -> Result<Result<(), LineError>, BuildError> {
        if is_blank(line) {
            return Ok(Ok(()));
        }
        match self.manifest.one_line(line) {
            Ok(()) => Ok(Ok(())),
            Err(Step::Line(error)) => Ok(Err(error)),
            Err(Step::Other(error)) => Err(error),
        }
    }

    /// Sets the attributes of directories that later lines need but do not list: `d MODE UID GID`
    /// or `D TIME MODE UID GID`.
    pub fn missing_directories(&mut self, attributes: &[u8]) -> Result<(), LineError> {
        let line = parse(&[b"/ ", attributes].concat(), true)?;
        let Action::Make(attributes, Make::Directory) = line.action else {
            return Err(LineError::Kind(lossy(attributes)));
        };
        if let Some(pseudo) = &mut self.manifest.pseudo {
            pseudo.dir = Some(attributes);
        }
        Ok(())
    }

    /// Applies the lines of a file.
    pub fn file(&mut self, path: &Path) -> Result<(), BuildError> {
        self.manifest.apply_file(path)
    }

    /// Completes the definitions: fails if the target of a link still does not exist.
    pub fn finish(mut self) -> Result<(), BuildError> {
        self.manifest.finish_links(Path::new("-p"))
    }
}

impl Manifest<'_> {
    /// Returns whether a line is ignored, after reporting the reason. Always false in forerun's own
    /// dialect.
    pub(super) fn is_ignored(&mut self, line: &Line) -> bool {
        if self.pseudo.is_none() {
            return false;
        }
        let there = self.find(&line.path);
        let is_dir =
            there.is_some_and(|there| matches!(self.tree.node(there).kind, NodeKind::Directory(_)));
        let Some(pseudo) = &mut self.pseudo else {
            return false;
        };
        let name = display(&line.path);
        let name = name.trim_start_matches('/');
        if line.path.is_empty() {
            return match line.action {
                Action::Make(_, Make::Directory) => !pseudo.makes_root,
                _ => {
                    (pseudo.told)("Pseudo definition / is not a directory.  Ignoring!".to_string());
                    true
                }
            };
        }
        let is_new = there.is_some_and(|there| pseudo.made.contains(&there));
        let is_found = there.is_some_and(|there| there.position() < pseudo.found);
        let message = match (&line.action, there) {
            (Action::Modify(_), None) => format!(
                "Pseudo modify file \"{name}\" does not exist in source filesystem.  Ignoring."
            ),
            (Action::Modify(_), Some(_)) if is_new => different(name),
            (Action::Modify(_) | Action::Xattr { .. }, _) | (_, None) => return false,
            // A directory that was created only for its entries takes the attributes of its own
            // line.
            (Action::Make(_, Make::Directory), Some(_)) if is_dir && !is_new && !is_found => {
                return false;
            }
            _ if is_found => {
                let source = pseudo.source.join(name);
                let source = source.display();
                format!(
                    "Pseudo file \"{name}\" exists in source filesystem \"{source}\".\n\
                     Ignoring, exclude it (-e/-ef) to override."
                )
            }
            _ => different(name),
        };
        (pseudo.told)(message);
        true
    }

    /// Adds a host file with its attributes. With `follows`, a symbolic link is followed.
    pub(super) fn like(
        &mut self,
        path: &[Vec<u8>],
        file: PathBuf,
        follows: bool,
    ) -> Result<(), Step> {
        let found = if follows {
            fs::canonicalize(&file).and_then(|file| like(&file))
        } else {
            like(&file)
        };
        let node = found.map_err(|source| LineError::Host { path: file, source })?;
        self.add(path, node)?;
        Ok(())
    }
}

fn different(name: &str) -> String {
    format!("{name} already exists as a different pseudo definition.  Ignoring!")
}

fn like(file: &Path) -> io::Result<NewNode> {
    let metadata = fs::symlink_metadata(file)?;
    let kind = if metadata.is_file() {
        let file = std::path::absolute(file)?;
        NodeKind::File {
            len: metadata.len(),
            content: Content::Host(HostFile::named(file, &metadata)),
        }
    } else if metadata.is_symlink() {
        NodeKind::Symlink(fs::read_link(file)?.into_os_string().into_vec())
    } else {
        let text = "neither a regular file nor a symbolic link";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let mode = metadata.permissions().mode() & 0o7777;
    let mut node = NewNode::new(kind, u16::try_from(mode).unwrap_or(0o7777));
    (node.uid, node.gid) = (metadata.uid(), metadata.gid());
    node.mtime = Timestamp {
        seconds: metadata.mtime(),
        nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    };
    Ok(node)
}
