//! The directories of an extraction, held open.
//!
//! Only the target is found by a path, which is the caller's own. Every other directory is opened by
//! one name in the one it is in, and a link there is not followed. So a caller with a descriptor from
//! here is beneath the target, and may use it with a single name without further checks. Descriptors
//! are many but not without bound; one that was closed is opened again the same way.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::ExtractOptions;
use super::attributes::{chmod_exactly, mode};
use super::plan::Dir;

/// The fate of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was not there.
    Made,
    Found,
    /// It could not be made; nothing can be made in it.
    Failed,
}

/// Directories by their index in the plan.
pub struct Directories {
    force: bool,
    /// Directories that are there and closed to their owner are opened to it.
    opens: bool,
    parents: Vec<(usize, Vec<u8>)>,
    states: Vec<State>,
    root: Arc<OwnedFd>,
    open: Mutex<Open>,
}

struct Open {
    most: usize,
    by_index: HashMap<usize, Arc<OwnedFd>>,
    /// In the order of opening: the oldest is closed first.
    order: VecDeque<usize>,
}

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// More would not pay: entries of one directory come close together.
const MOST_OPEN: usize = 256;

impl Directories {
    /// Opens the target, making it and its parents where they are missing. The path to it is the
    /// caller's own and may contain symbolic links. With [`ExtractOptions::is_new`] the caller has just made it.
    pub fn open(target: &Path, dirs: &[Dir<'_>], options: &ExtractOptions) -> io::Result<Self> {
        let was_there = !options.is_new && target.try_exists().unwrap_or(true);
        std::fs::create_dir_all(target)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, target, flags, Mode::empty())?;
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1024);
        let most = forerun_io::usize_from(descriptors / 4).clamp(1, MOST_OPEN);
        let state = if was_there { State::Found } else { State::Made };
        Ok(Self {
            force: options.force,
            opens: options.force || options.skip_existing,
            parents: dirs
                .iter()
                .map(|dir| (dir.parent, dir.name.to_vec()))
                .collect(),
            states: vec![state],
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

    /// Makes the next directory of the plan, or accepts the one that is there.
    pub fn make(&mut self, mode: Mode) -> io::Result<State> {
        let index = self.states.len();
        let made = self.make_one(index, mode);
        self.states
            .push(made.as_ref().map_or(State::Failed, |state| *state));
        made
    }

    /// Returns the fate of a directory.
    pub fn state(&self, index: usize) -> State {
        self.states.get(index).copied().unwrap_or(State::Failed)
    }

    /// Returns a directory; opens it, and directories above it, where they are not open.
    pub fn get(&self, index: usize) -> io::Result<Arc<OwnedFd>> {
        // Up to one that is open, and down again.
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
            at = self.parents.get(at).map_or(0, |(parent, _)| *parent);
        };
        for at in closed.into_iter().rev() {
            let name = self.name(at);
            dir = Arc::new(rustix::fs::openat(&*dir, name, DIR, Mode::empty())?);
            self.keep(at, &dir);
        }
        Ok(dir)
    }

    /// Runs what makes `name` in `dir`; where something of that name is there already, that is an
    /// error, or when forced it is unlinked first.
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
        let (parent, name) = match self.parents.get(index) {
            Some((parent, name)) => (*parent, name.as_slice()),
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let dir = self.get(parent)?;
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
            // The name is taken by something else: that says more than what opening it gives.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST.into()),
            opened => opened?,
        };
        self.keep(index, &Arc::new(opened));
        Ok(state)
    }

    pub fn name(&self, index: usize) -> &[u8] {
        self.parents
            .get(index)
            .map_or(&b""[..], |(_, name)| name.as_slice())
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

/// Lets the caller into a directory of its own that was finished with a narrower mode, as 0555. The end of
/// the extraction sets the mode of the image again.
fn open_to_owner(dir: &OwnedFd, name: &[u8]) {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return;
    };
    let bits = stat.st_mode & 0o7777;
    let is_closed = FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && bits & 0o700 != 0o700
        && stat.st_uid == rustix::process::geteuid().as_raw();
    if is_closed && let Ok(bits) = u16::try_from(bits | 0o700) {
        // Where this fails, making the entries fails and says so.
        let _ = chmod_exactly(dir, name, mode(bits));
    }
}
