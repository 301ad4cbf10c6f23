//! `forerun ls`: lists an image.
//!
//! The output follows ls(1) where that makes sense: sorted and aligned, with names escaped on a
//! terminal and raw in a pipe. Names that start with a dot are always shown, because a user lists
//! an image to see everything. Owners are numbers, since their names belong to the image, not to
//! this machine.

mod grid;
pub mod long;
mod view;

use std::ffi::OsString;

use clap::Args;
use forerun::Reader;
use forerun::vfs::{Bound, Error, FileType, FollowLast, Held, Metadata, NodeId, resolve};
use forerun_export::{ListEntry, Patterns, expand, list};

use crate::args::{ImageArgs, image_path};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use view::View;

/// List files in an image
///
/// For a directory, lists its contents; for any other file, its name.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun ls firmware.img
  forerun ls -lR firmware.img /etc
  forerun ls -R --include '*.conf' firmware.img")]
pub struct LsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Paths in the image [default: /]
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Show mode, links, owner, group, size, time and link target
    ///
    /// Owner and group are numbers. Devices have their numbers in place of a size.
    #[arg(short, long)]
    pub long: bool,
    /// List directories recursively
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    pub directory: bool,
    /// List one name on each line
    #[arg(short = '1')]
    pub one: bool,
    /// With -l, show sizes as 1.5 MiB
    #[arg(short = 'h', long)]
    pub human: bool,
    /// List only paths that match GLOB; repeat for more
    ///
    /// A GLOB with a slash must match the whole path, and a GLOB without a slash the name. If a
    /// directory matches, everything in it does.
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Has no effect: names that start with a dot are always listed
    #[arg(short, hide_short_help = true)]
    pub all: bool,
}

#[derive(Debug)]
pub struct Entry {
    /// The shown name, or a path as the user gave it.
    pub name: Vec<u8>,
    pub node: NodeId,
    /// `None` if it could not be read, which was reported.
    pub metadata: Option<Metadata>,
    /// The target of a symbolic link, if it could be read.
    pub target: Option<Vec<u8>>,
}

impl Entry {
    /// Returns the path from the root of the image, with a leading slash. `dir` is the directory of
    /// the entry, or `None` for an entry that the user named.
    pub fn path(&self, dir: Option<&[u8]>) -> Vec<u8> {
        path_of(dir, &self.name)
    }

    fn is_dir(&self) -> bool {
        self.metadata
            .as_ref()
            .is_some_and(|metadata| metadata.kind == FileType::Directory)
    }

    /// Returns the memory that the entry and its line take.
    fn cost(&self) -> usize {
        let target = self.target.as_ref().map_or(0, Vec::len);
        2 * (size_of::<Self>() + self.name.len() + target)
    }
}

/// A directory to be listed later.
struct Pending {
    /// Name in the parent directory. The first directory has its path here.
    name: Vec<u8>,
    node: NodeId,
    depth: usize,
}

impl Pending {
    fn cost(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

/// Bytes of entries that are shown and aligned together.
const TOGETHER: usize = 8 << 20;

pub fn run(context: &Context, args: &LsArgs) -> Result {
    let include = Patterns::new(&args.include)?;
    let image = context.open(&args.image)?;
    let mut view = View::new(context, args)?;
    let mut listing = Listing {
        context,
        args,
        include,
        name: image_name(&args.image),
        reader: image.reader(),
        seen: 0,
        held: Held::new(image.reader().limits()),
        exit: Exit::Ok,
    };
    listing.run(&mut view)?;
    let exit = listing.exit;
    view.finish()?;
    Ok(exit)
}

struct Listing<'a> {
    context: &'a Context,
    args: &'a LsArgs,
    /// If not empty, only entries that match are shown.
    include: Patterns,
    name: String,
    reader: &'a Reader,
    /// Entries listed so far. A hostile tree can be endless without being deep.
    seen: u64,
    /// Memory for the names of the current directory and for directories to be listed later.
    held: Held,
    exit: Exit,
}

impl Listing<'_> {
    fn run(&mut self, view: &mut View) -> Result<()> {
        if self.args.recursive {
            self.reader.prefetch_metadata();
        }
        let root = [OsString::from("/")];
        let paths = match self.args.paths.as_slice() {
            [] => &root[..],
            paths => paths,
        };
        let mut files = Vec::new();
        let mut dirs = Vec::new();
        let named = paths.len();
        let paths = self.expanded(paths);
        for path in &paths {
            match self.named(path) {
                Ok(entry) if entry.is_dir() && !self.args.directory => dirs.push(entry),
                Ok(entry) if self.is_shown(&entry.path(None)) => files.push(entry),
                Ok(_) => {}
                Err(error) => self.report(error, path),
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        dirs.sort_by(|a, b| a.name.cmp(&b.name));
        if !files.is_empty() {
            view.section(None)?;
            view.entries(None, &files)?;
        }
        let headed = self.args.recursive || named.max(paths.len()) > 1;
        for dir in dirs {
            self.tree(view, &dir, headed)?;
        }
        Ok(())
    }

    /// Expands the paths of the command line.
    fn expanded(&mut self, paths: &[OsString]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for path in paths.iter().map(image_path) {
            match expand(self.reader, path) {
                Ok(paths) => all.extend(paths),
                Err(error) => {
                    let failure = Failure::from(error).of(&self.name).at(path);
                    self.exit = self.exit.and(self.context.report(&failure));
                }
            }
        }
        all
    }

    /// Returns whether an entry is shown. `path` starts with a slash.
    fn is_shown(&self, path: &[u8]) -> bool {
        self.include.is_empty() || self.include.covers(path.get(1..).unwrap_or_default())
    }

    /// Lists a directory and, if asked for, the tree below it. It does not recurse, because the
    /// image decides how deep its tree is.
    fn tree(&mut self, view: &mut View, start: &Entry, headed: bool) -> Result<()> {
        let mut pending = vec![Pending {
            name: start.path(None),
            node: start.node,
            depth: 0,
        }];
        let (mut path, mut ancestors) = (Vec::new(), Vec::<(NodeId, usize)>::new());
        while let Some(dir) = pending.pop() {
            ancestors.truncate(dir.depth);
            match ancestors.last() {
                Some(&(_, len)) => {
                    self.held.free(dir.cost());
                    path.truncate(len);
                    path = join(&path, &dir.name);
                }
                None => path.clone_from(&dir.name),
            }
            if let Err(error) = self.may_enter(&ancestors, dir.node, &path) {
                self.report(error, &path);
                continue;
            }
            ancestors.push((dir.node, path.len()));
            let (names, error) = list(self.reader, dir.node, &mut self.held);
            if let Some(error) = error {
                self.report(error, &path);
            }
            self.seen += crate::size::count_of(names.len());
            let max_entries = self.reader.limits().tree_entries;
            if self.seen > max_entries {
                let limit = Error::limit(
                    Bound::Entries,
                    "number of entries of all directories",
                    max_entries,
                );
                self.report(limit, &path);
                return Ok(());
            }
            // A directory without a match is not shown.
            if self.include.is_empty()
                || names
                    .names()
                    .any(|(name, _)| self.is_shown(&join(&path, name)))
            {
                view.section(headed.then_some(&path))?;
            }
            let first = pending.len();
            let listed = self.directory(view, &path, &names, ancestors.len(), &mut pending);
            self.held.free(names.held());
            if let Some(error) = listed? {
                self.report(error, &path);
                return Ok(());
            }
            pending.get_mut(first..).unwrap_or_default().reverse();
        }
        Ok(())
    }

    fn may_enter(
        &self,
        ancestors: &[(NodeId, usize)],
        dir: NodeId,
        path: &[u8],
    ) -> forerun::vfs::Result<()> {
        if ancestors.iter().any(|&(node, _)| node == dir) {
            let path = path.get(1..).unwrap_or_default().to_vec();
            return Err(Error::DirectoryLoop { node: dir, path });
        }
        let max_depth = self.reader.limits().depth;
        if ancestors.len() >= max_depth {
            let limit = crate::size::count_of(max_depth);
            return Err(Error::limit(
                Bound::Depth,
                "depth of the directory tree",
                limit,
            ));
        }
        Ok(())
    }

    /// Shows the entries of a directory, a part at a time, and adds subdirectories to `pending` if
    /// they are to be listed. Fails if these are too many.
    fn directory(
        &mut self,
        view: &mut View,
        path: &[u8],
        names: &forerun_export::Listing,
        depth: usize,
        pending: &mut Vec<Pending>,
    ) -> Result<Option<Error>> {
        let (mut entries, mut bytes, mut over) = (Vec::new(), 0, None);
        for (name, node) in names.names() {
            let entry = self.entry(ListEntry::of(self.reader, name, node), Some(path));
            if self.args.recursive && entry.is_dir() {
                let below = Pending {
                    name: name.to_vec(),
                    node,
                    depth,
                };
                over = self.held.add(below.cost()).err();
                if over.is_some() {
                    break;
                }
                pending.push(below);
            }
            if !self.is_shown(&join(path, name)) {
                continue;
            }
            bytes += entry.cost();
            entries.push(entry);
            if bytes >= TOGETHER {
                view.entries(Some(path), &entries)?;
                entries.clear();
                bytes = 0;
            }
        }
        view.entries(Some(path), &entries)?;
        Ok(over)
    }

    /// Returns the entry that the user named on the command line.
    fn named(&mut self, path: &[u8]) -> forerun::vfs::Result<Entry> {
        // As in ls, a link on the command line is followed unless the link itself is shown.
        let shown = self.args.long || self.args.directory || self.context.global.json;
        let last = if shown {
            FollowLast::No
        } else {
            FollowLast::Yes
        };
        let fs = self.reader.fs();
        let node = resolve(fs, path, last, self.reader.limits())?;
        fs.metadata(node)?;
        Ok(self.entry(ListEntry::of(self.reader, path, node), None))
    }

    /// Reads what is shown of an entry. Errors are reported.
    fn entry(&mut self, entry: ListEntry, dir: Option<&[u8]>) -> Entry {
        let name = entry.name;
        let mut failed = |error| self.report(error, &path_of(dir, &name));
        let metadata = entry.metadata.map_err(&mut failed).ok();
        let target = entry.target.and_then(|read| read.map_err(&mut failed).ok());
        Entry {
            name,
            node: entry.node,
            metadata,
            target,
        }
    }

    fn report(&mut self, error: Error, path: &[u8]) {
        let failure = Failure::from(error).of(&self.name).at(path);
        self.exit = self.exit.and(self.context.report(&failure));
    }
}

/// Returns the path from the root of an entry of `dir`, or of an entry that the user named.
fn path_of(dir: Option<&[u8]>, name: &[u8]) -> Vec<u8> {
    match dir {
        Some(dir) => join(dir, name),
        None => absolute(name),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// Returns `path` from the root, without empty and `.` components. `..` is kept.
fn absolute(path: &[u8]) -> Vec<u8> {
    let names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    let mut absolute = Vec::with_capacity(path.len() + 1);
    for name in names {
        absolute.push(b'/');
        absolute.extend_from_slice(name);
    }
    if absolute.is_empty() {
        absolute.push(b'/');
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_from_the_root() {
        for (path, expected) in [
            (&b""[..], &b"/"[..]),
            (b"/", b"/"),
            (b"a", b"/a"),
            (b"./a//b/", b"/a/b"),
            (b"/a/../b", b"/a/../b"),
        ] {
            assert_eq!(absolute(path), expected, "{path:?}");
        }
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
    }
}
