//! A sandbox for processes that read images.
//!
//! Images come from anywhere, and their parsers are the first code that hostile bytes reach. A
//! [`Sandbox`] lists what a command needs after it has opened its files; [`Sandbox::enter`] gives
//! up everything else, for the whole process and irrevocably. It uses no_new_privs, capabilities,
//! Landlock, seccomp and resource limits. A kernel without one of them restricts less; the
//! [`Report`] says which are in force.
//!
//! Landlock and capabilities apply to a thread. Later threads inherit them, existing threads do
//! not, so a command enters the sandbox before it starts a thread. Seccomp covers all threads.
//! docs/sandbox.md lists what each command keeps.
//!
//! This crate knows no command and no format. It opens only the paths for its rules.

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sockets {
    #[default]
    None,
    /// Existing sockets, and connections accepted on them.
    Open,
    New,
}

/// What a process may still do after it has opened its files. A new sandbox allows only open files,
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
    /// Creates a sandbox that permits opening nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows reading `path`, and everything below it if it is a directory.
    #[must_use]
    pub fn read(mut self, path: impl AsRef<Path>) -> Self {
        self.rules.read.push(path.as_ref().into());
        self
    }

    /// Allows the kernel to open files below `path` for reading and execution by other processes
    /// when it uses this process's rights (FUSE passthrough). This process itself may only read
    /// them.
    #[must_use]
    pub fn lend(mut self, path: impl AsRef<Path>) -> Self {
        self.rules.lend.push(path.as_ref().into());
        self
    }

    /// Allows reading, writing, creating and removing files below `dir`.
    #[must_use]
    pub fn write_below(mut self, dir: impl AsRef<Path>) -> Self {
        self.rules.write.push(dir.as_ref().into());
        self
    }

    #[must_use]
    pub fn write_file(mut self, path: impl AsRef<Path>) -> Self {
        self.rules.write_file.push(path.as_ref().into());
        self
    }

    /// Allows creating, renaming and removing files in `dir`, but not opening existing files.
    #[must_use]
    pub fn name_files_in(mut self, dir: impl AsRef<Path>) -> Self {
        self.rules.name.push(dir.as_ref().into());
        self
    }

    #[must_use]
    pub fn remove_directories_in(mut self, dir: impl AsRef<Path>) -> Self {
        self.rules.remove_dirs.push(dir.as_ref().into());
        self
    }

    /// Disables Landlock for `reason`: the process needs files that cannot be listed in advance.
    #[must_use]
    pub const fn all_files(mut self, reason: &'static str) -> Self {
        self.all_files = Some(reason);
        self
    }

    /// Allows sockets. [`Sockets::New`] also allows reading the system's network configuration:
    /// name servers, certificates.
    #[must_use]
    pub fn sockets(mut self, sockets: Sockets) -> Self {
        self.sockets = self.sockets.max(sockets);
        self
    }

    /// Allows running programs. Most sandboxes would let them open nothing, so this disables
    /// Landlock.
    #[must_use]
    pub const fn programs(mut self) -> Self {
        self.programs = true;
        self.all_files("programs that it runs need their files")
    }

    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.rules.add(other.rules);
        self.sockets = self.sockets.max(other.sockets);
        self.programs |= other.programs;
        self.all_files = self.all_files.or(other.all_files);
        self.keep(other.capabilities)
    }

    /// Keeps these capabilities if the process has them.
    #[must_use]
    pub const fn keep(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = self.capabilities.union(capabilities);
        self
    }

    /// Enters the sandbox. Returns the measures in force. Measures that the kernel lacks or refuses
    /// are in the report and in the log; they are not an error.
    pub fn enter(&self) -> Report {
        let threads = threads();
        let mut report = Report::default();
        report.put("no_new_privs", no_new_privs());
        report.put("core dumps", no_core_dumps());
        let emulator = emulator_of_root();
        let talks = emulator.map(|name| format!("{name} is preloaded, and talks to its server"));
        // Restrict paths before dropping capabilities: adding a rule opens its path.
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

/// Adds to the state that existing threads are not covered.
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

/// Returns the number of threads of this process; 1 if `/proc` is not readable.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

fn no_new_privs() -> State {
    match rustix::thread::set_no_new_privs(true) {
        Ok(()) => State::InForce("set".into()),
        Err(error) => State::Missing(error.to_string()),
    }
}

/// Disables core dumps, which would expose credentials and other users' files in memory.
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
