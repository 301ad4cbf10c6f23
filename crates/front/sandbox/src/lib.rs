//! A sandbox for a process that reads an image.
//!
//! An image comes from anywhere, and its parser is the code that meets it first. A [`Sandbox`] says
//! what a command still needs once its files are open; [`Sandbox::enter`] gives up all else, for the
//! whole process and for good. It uses no_new_privs, capabilities, Landlock, seccomp and resource
//! limits. A kernel that lacks one of them takes away less; the [`Report`] says which are in force.
//!
//! Landlock and capabilities belong to a thread. Threads that begin later inherit them, threads that
//! began earlier do not, so a command enters before its first thread starts. Seccomp is set for all
//! threads. docs/sandbox.md says what each command keeps.
//!
//! This crate knows no command and no format. It opens no file but the directories it makes rules of.

mod capabilities;
mod filter;
mod paths;
mod preloaded;
mod report;
mod syscalls;

use std::path::Path;

use rustix::process::{Resource, Rlimit, setrlimit};

pub use preloaded::emulator_of_root;
pub use report::{Measure, Report, State};
pub use rustix::thread::CapabilitySet as Capabilities;

use paths::Rules;

/// Which sockets a process may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sockets {
    #[default]
    None,
    /// Sockets that are open, and connections that arrive at them.
    Open,
    New,
}

/// The needs of a process after it has opened its files. A new one needs nothing but its open files,
/// memory and threads.
#[derive(Clone, Debug)]
pub struct Sandbox {
    rules: Rules,
    sockets: Sockets,
    programs: bool,
    all_files: Option<&'static str>,
    capabilities: Capabilities,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            sockets: Sockets::None,
            programs: false,
            all_files: None,
            capabilities: Capabilities::empty(),
        }
    }
}

impl Sandbox {
    /// Creates a sandbox in which nothing can be opened.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows to read `path`, and all below it where it is a directory.
    #[must_use]
    pub fn read(mut self, path: impl AsRef<Path>) -> Self {
        self.rules.read.push(path.as_ref().into());
        self
    }

    /// Allows the kernel to open the files below `path` for other processes, to read and to run them, where
    /// it does so with the rights of this process (FUSE passthrough). This process may only read them.
    #[must_use]
    pub fn lend(mut self, path: impl AsRef<Path>) -> Self {
        self.rules.lend.push(path.as_ref().into());
        self
    }

    /// Allows to read, write, make and remove whatever is below `dir`.
    #[must_use]
    pub fn write_below(mut self, dir: impl AsRef<Path>) -> Self {
        self.rules.write.push(dir.as_ref().into());
        self
    }

    /// Allows to write to the file or device at `path`, and to read it.
    #[must_use]
    pub fn write_file(mut self, path: impl AsRef<Path>) -> Self {
        self.rules.write_file.push(path.as_ref().into());
        self
    }

    /// Allows to make, rename and remove files in `dir`, but not to open those that are there.
    #[must_use]
    pub fn name_files_in(mut self, dir: impl AsRef<Path>) -> Self {
        self.rules.name.push(dir.as_ref().into());
        self
    }

    /// Allows to remove empty directories from `dir`.
    #[must_use]
    pub fn remove_directories_in(mut self, dir: impl AsRef<Path>) -> Self {
        self.rules.remove_dirs.push(dir.as_ref().into());
        self
    }

    /// Leaves Landlock out, for this reason: the process needs files that nothing names beforehand.
    #[must_use]
    pub const fn all_files(mut self, reason: &'static str) -> Self {
        self.all_files = Some(reason);
        self
    }

    /// Allows sockets. [`Sockets::New`] also allows to read what the system keeps about the network:
    /// name servers, certificates.
    #[must_use]
    pub fn sockets(mut self, sockets: Sockets) -> Self {
        self.sockets = self.sockets.max(sockets);
        self
    }

    /// Allows to run programs. They could open nothing in most sandboxes, so this leaves Landlock out.
    #[must_use]
    pub const fn programs(mut self) -> Self {
        self.programs = true;
        self.all_files("programs that it runs need their files")
    }

    /// Allows what `other` allows as well.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.rules.add(other.rules);
        self.sockets = self.sockets.max(other.sockets);
        self.programs |= other.programs;
        self.all_files = self.all_files.or(other.all_files);
        self.keep(other.capabilities)
    }

    /// Keeps these capabilities where the process has them.
    #[must_use]
    pub const fn keep(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = self.capabilities.union(capabilities);
        self
    }

    /// Gives up all else. Returns what is in force from now on; what the kernel lacks or refuses is in
    /// the report and in the log, and is no error.
    pub fn enter(&self) -> Report {
        let threads = threads();
        let mut report = Report::default();
        report.put("no_new_privs", no_new_privs());
        report.put("core dumps", no_core_dumps());
        let emulator = emulator_of_root();
        let talks = emulator.map(|name| format!("{name} is preloaded, and talks to its server"));
        // Before the capabilities go: a rule begins with opening its path.
        let paths = match (&talks, self.all_files) {
            (Some(reason), _) => State::Missing(reason.clone()),
            (None, Some(reason)) => State::Missing(reason.into()),
            (None, None) => match paths::restrict(&self.rules, self.sockets, threads > 1) {
                (state, true) => state,
                (state, false) => of_this_thread(state, threads),
            },
        };
        report.put("landlock", paths);
        let dropped = capabilities::keep_only(self.capabilities);
        report.put("capabilities", of_this_thread(dropped, threads));
        let writes = self.rules.writes() || self.all_files.is_some();
        let calls = match talks {
            Some(reason) => State::Missing(reason),
            None => filter::install(self.sockets, self.programs, writes),
        };
        report.put("seccomp", calls);
        report.log();
        report
    }
}

/// Says that threads which began earlier are not covered.
fn of_this_thread(state: State, threads: usize) -> State {
    match state {
        State::InForce(what) | State::Partly(what) if threads > 1 => {
            let earlier = threads - 1;
            State::Partly(format!(
                "{what}, not for {earlier} threads that began earlier"
            ))
        }
        state => state,
    }
}

/// Returns the number of threads of this process; 1 where `/proc` does not tell.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

fn no_new_privs() -> State {
    match rustix::thread::set_no_new_privs(true) {
        Ok(()) => State::InForce("set".into()),
        Err(error) => State::Missing(error.to_string()),
    }
}

/// Disables core dumps, which would show the contents of memory: credentials, files of other users.
fn no_core_dumps() -> State {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    match setrlimit(Resource::Core, none) {
        Ok(()) => State::InForce("off".into()),
        Err(error) => State::Missing(error.to_string()),
    }
}
