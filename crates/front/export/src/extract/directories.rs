//! The directories of an extraction and their open descriptors.
//!
//! Only the target is opened by a path, which the user gave. Every other directory is opened by
//! name relative to its parent, without following links. A descriptor from here is therefore
//! beneath the target, and the caller can use it with a single name without further checks. The
//! number of open descriptors is bounded; closed directories are reopened the same way.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use rustix::fs::{AtFlags, CWD, FileType, IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::ExtractOptions;
use super::attributes::{chmod_exactly, mode};
use super::plan::Dir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Made,
    Found,
    /// Not created, so its entries cannot be created either.
    Failed,
}

/// Directories by their index in the plan.
pub struct Directories {
    force: bool,
    /// Whether existing directories without permissions for their owner are made accessible.
    opens: bool,
    parents: Vec<(usize, Vec<u8>)>,
    states: Vec<State>,
    root: Arc<OwnedFd>,
    open: Mutex<Open>,
}

struct Open {
    most: usize,
    by_index: HashMap<usize, Arc<OwnedFd>>,
    /// Open directories in the order of opening; the oldest is closed first.
    order: VecDeque<usize>,
}

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Maximum open directories. More would not help, because entries of a directory come together.
const MOST_OPEN: usize = 256;

impl Directories {
    /// Opens the target; creates it and its parents if needed. The path is the user's and may
    /// contain symbolic links. With [`ExtractOptions::is_new`] the caller has just created it.
    pub fn open(target: &Path, dirs: &[Dir<'_>], options: &ExtractOptions) -> io::Result<Self> {
        let was_there = !options.is_new && target.try_exists().unwrap_or(true);
        std::fs::create_dir_all(target)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, target, flags, Mode::empty())?;
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1024);
        let most = forerun_io::usize_from(descriptors / 4).clamp(1, MOST_OPEN);
        let mut states = vec![State::Failed; dirs.len()];
        states[0] = if was_there { State::Found } else { State::Made };
        Ok(Self {
            force: options.force,
            opens: options.force || options.skip_existing,
            parents: dirs
                .iter()
                .map(|dir| (dir.parent, dir.name.to_vec()))
                .collect(),
            states,
            root: Arc::new(root),
            open: Mutex::new(Open {
                most,
                by_index: HashMap::new(),
                order: VecDeque::new(),
            }),
        })
    }

    pub fn root(&self) -> &Arc<OwnedFd> {
        &self.root
    }

    /// Creates a directory of the plan, or accepts an existing one. Its parent comes first.
    pub fn make(&mut self, index: usize, mode: Mode) -> io::Result<()> {
        self.states[index] = self.make_one(index, mode)?;
        Ok(())
    }

    pub fn state(&self, index: usize) -> State {
        self.states[index]
    }

    /// Makes ext4 spread new subdirectories of a directory until the guard is dropped. Returns
    /// `None` if the filesystem cannot do that.
    pub fn spread(&self, index: usize) -> Option<Spread> {
        Spread::set(self.get(index).ok()?)
    }

    /// Opens the directory, and its parents if needed.
    pub fn get(&self, index: usize) -> io::Result<Arc<OwnedFd>> {
        // Go up to an open directory, then open downwards from it.
        let mut closed = Vec::new();
        let mut at = index;
        let mut dir = loop {
            if at == 0 {
                break Arc::clone(&self.root);
            }
            if self.state(at) == State::Failed {
                let text = "its directory could not be made";
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
            if let Some(dir) = self.lock().by_index.get(&at) {
                break Arc::clone(dir);
            }
            closed.push(at);
            at = self.parents[at].0;
        };
        for at in closed.into_iter().rev() {
            let name = self.name(at);
            dir = Arc::new(rustix::fs::openat(&*dir, name, DIR, Mode::empty())?);
            self.keep(at, &dir);
        }
        Ok(dir)
    }

    /// Runs `make`, which creates `name` in `dir`. An existing name is an error, or with `force` is
    /// unlinked first.
    pub fn exclusively<T>(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        make: impl Fn() -> Result<T, Errno>,
    ) -> io::Result<T> {
        match make() {
            Err(Errno::EXIST) if self.force => {
                rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
                Ok(make()?)
            }
            made => Ok(made?),
        }
    }

    fn make_one(&self, index: usize, mode: Mode) -> io::Result<State> {
        let (parent, name) = &self.parents[index];
        let dir = self.get(*parent)?;
        let state = match rustix::fs::mkdirat(&*dir, name, mode) {
            Ok(()) => State::Made,
            Err(Errno::EXIST) => State::Found,
            Err(error) => return Err(error.into()),
        };
        if state == State::Found && self.opens {
            open_to_owner(&dir, name);
        }
        let opened = match rustix::fs::openat(&*dir, name, DIR, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) if self.force => {
                let make = || rustix::fs::mkdirat(&*dir, name, mode);
                self.exclusively(&dir, name, make)?;
                let opened = rustix::fs::openat(&*dir, name, DIR, Mode::empty())?;
                self.keep(index, &Arc::new(opened));
                return Ok(State::Made);
            }
            // Report that the name exists and is not a directory, instead of the error from opening
            // it.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST.into()),
            opened => opened?,
        };
        self.keep(index, &Arc::new(opened));
        Ok(state)
    }

    pub fn name(&self, index: usize) -> &[u8] {
        &self.parents[index].1
    }

    fn keep(&self, index: usize, dir: &Arc<OwnedFd>) {
        let mut open = self.lock();
        if open.by_index.insert(index, Arc::clone(dir)).is_none() {
            open.order.push_back(index);
        }
        while open.order.len() > open.most {
            if let Some(oldest) = open.order.pop_front() {
                open.by_index.remove(&oldest);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unpoisoned()
    }
}

/// Guard: ext4 places the subdirectories of this directory in block groups far apart, as it does in
/// the root of the filesystem.
///
/// Without that, a tree goes to few adjacent groups, the same ones for each extraction. ext4
/// without a journal does not reuse an inode within a minute of its deletion. Each new inode then
/// costs a search past all inodes that were deleted in its group.
pub struct Spread(Arc<OwnedFd>);

impl Spread {
    fn set(dir: Arc<OwnedFd>) -> Option<Self> {
        let flags = ioctl_getflags(&*dir).ok()?;
        // A flag that was set before is kept.
        if flags.contains(IFlags::TOPDIR) {
            return None;
        }
        ioctl_setflags(&*dir, flags | IFlags::TOPDIR).ok()?;
        Some(Self(dir))
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        if let Ok(flags) = ioctl_getflags(&*self.0) {
            let _it_only_guides_the_allocation = ioctl_setflags(&*self.0, flags - IFlags::TOPDIR);
        }
    }
}

/// Makes an own directory writable that an earlier run finished with a narrower mode, such as 0555.
/// The image's mode is set again at the end.
fn open_to_owner(dir: &OwnedFd, name: &[u8]) {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return;
    };
    let bits = stat.st_mode & 0o7777;
    let is_closed = FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && bits & 0o700 != 0o700
        && stat.st_uid == rustix::process::geteuid().as_raw();
    if is_closed && let Ok(bits) = u16::try_from(bits | 0o700) {
        // If this fails, creating the entries reports an error.
        let _ = chmod_exactly(dir, name, mode(bits));
    }
}
