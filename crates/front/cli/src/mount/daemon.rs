//! The background process of a mount.
//!
//! A fork would copy only one of many threads, so the program starts itself again with the same
//! arguments. The standard output of the new process is a pipe: one byte on it says that the mount
//! answers. Until then its errors go to the caller's standard error, like those of any command. If
//! the process ends without that byte, its exit code becomes the caller's.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use forerun_fuse::{MountNamespace, MountOptions};
use nix::sys::signal::{SigSet, Signal};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use super::{MountArgs, failed};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::role::{self, Role};
use crate::{inherited, secrets};

/// Words that tell a supervisor to stay in its mount namespace, or to leave it.
const STAY: &str = "stay";
const LEAVE: &str = "leave";
/// Tells a background process to end its mount with the caller.
const WITH_CALLER: &str = "with-caller";
const READY: &[u8] = b".";

/// Returns whether this process runs in the background, so that its caller needs only its errors.
pub fn is_in_background() -> bool {
    role::is(Role::LoneServer) || role::is(Role::Server)
}

/// Returns whether this process serves, without a supervisor, a mount that must end with the
/// caller.
pub fn ends_with_caller() -> bool {
    let this = role::of_this_process().filter(|this| this.role == Role::LoneServer);
    this.and_then(|this| this.word(0)).is_some()
}

/// The arguments that a supervisor gets from the caller, which has parsed the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorArgs {
    /// Deaths per minute after which the server is still replaced.
    pub restarts: u32,
    pub verbose: u8,
    pub log: Option<PathBuf>,
    pub used: Option<Vec<(u32, u32)>>,
    pub ends_with_caller: bool,
    /// The mount point, as the caller named it.
    pub dir: OsString,
}

impl SupervisorArgs {
    /// Returns the arguments if this process is a supervisor.
    pub fn of_this_process() -> Option<Self> {
        let this = role::of_this_process().filter(|this| this.role == Role::Supervisor)?;
        let text = |number| this.word(number).and_then(OsStr::to_str);
        Some(Self {
            restarts: text(0)?.parse().ok()?,
            verbose: text(1)?.parse().ok()?,
            used: parse_used(text(2)?)?,
            ends_with_caller: this.word(3).is_some(),
            log: this.word(4).map(PathBuf::from),
            dir: this.word(5).unwrap_or_default().into(),
        })
    }

    fn words(&self) -> [OsString; 6] {
        [
            self.restarts.to_string().into(),
            self.verbose.to_string().into(),
            print_used(self.used.as_deref()).into(),
            end(self.ends_with_caller).into(),
            self.log.clone().unwrap_or_default().into(),
            self.dir.clone(),
        ]
    }
}

/// Returns the devices of the filesystems on which a server opens files, now or when it is
/// replaced. Its copy of the mount namespace must contain them. Returns `None` if the server must
/// stay in the namespace, as the process of `auto_unmount` does.
pub fn used_devices(args: &MountArgs, options: &MountOptions) -> Option<Vec<(u32, u32)>> {
    if options.auto_unmount {
        return None;
    }
    let program = PathBuf::from("/proc/self/exe");
    let mut paths = vec![Path::new("."), &program, &args.image];
    paths.extend(args.layers.iter().map(PathBuf::as_path));
    paths.extend(options.devices.iter().map(PathBuf::as_path));
    paths.extend(options.stores().map(PathBuf::as_path));
    paths.extend(args.log.as_deref());
    let metadata = paths.into_iter().filter_map(|path| path.metadata().ok());
    let device = |dev| (rustix::fs::major(dev), rustix::fs::minor(dev));
    Some(metadata.map(|metadata| device(metadata.dev())).collect())
}

const fn end(with_caller: bool) -> &'static str {
    if with_caller { WITH_CALLER } else { "" }
}

/// Encodes the result of [`used_devices`]: `stay`, or `leave,0:45,8:1`.
fn print_used(used: Option<&[(u32, u32)]>) -> String {
    let Some(used) = used else {
        return STAY.to_string();
    };
    let devices = used
        .iter()
        .map(|(major, minor)| format!(",{major}:{minor}"));
    std::iter::once(LEAVE.to_string()).chain(devices).collect()
}

fn parse_used(text: &str) -> Option<Option<Vec<(u32, u32)>>> {
    let mut words = text.split(',');
    let device = |word: &str| {
        let (major, minor) = word.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    match words.next()? {
        STAY => Some(None),
        LEAVE => words.map(device).collect::<Option<_>>().map(Some),
        _ => None,
    }
}

/// Returns a descriptor of the parent process that becomes readable when the parent has ended.
/// Returns `None` before Linux 5.3, and if the parent has already ended, which [`ready`] detects.
pub fn caller() -> Option<OwnedFd> {
    let parent = rustix::process::getppid()?;
    let opened = pidfd_open(parent, PidfdFlags::empty()).ok();
    opened.filter(|_| rustix::process::getppid() == Some(parent))
}

/// Moves this process, which has a single thread, to a copy of its mount namespace, so that the
/// mount ends with the programs of the old namespace. Returns the old namespace.
pub fn leave_namespace(used: Option<&[(u32, u32)]>) -> Result<Option<MountNamespace>> {
    let Some(used) = used else {
        return Ok(None);
    };
    let caller = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    let caller = caller.and_then(|pid| u32::try_from(pid).ok());
    let left = MountNamespace::leave(caller, used);
    left.map_err(|error| failed("leaving the mount namespace", &error))
}

/// Returns the mount namespace that the parent process names.
pub fn named_namespace() -> Option<MountNamespace> {
    let this = role::of_this_process()?;
    let namespace = this
        .word(0)
        .filter(|_| matches!(this.role, Role::Server | Role::Mounter));
    namespace.map(|link| MountNamespace::from_link(link.to_os_string()))
}

/// Returns the words that tell a new process the mount namespace of the mount.
pub fn namespace_words(namespace: Option<&MountNamespace>) -> [OsString; 1] {
    [namespace
        .map(ToString::to_string)
        .unwrap_or_default()
        .into()]
}

/// Starts the background process. Returns when its mount answers or it has failed. With
/// `supervisor`, the process is a supervisor, which starts the server.
pub fn start(supervisor: Option<&SupervisorArgs>, dir: &Path, ends_with_caller: bool) -> Result {
    let starting = |error| failed("starting the process that serves the mount", &error);
    let dir = dir.display();
    let command = match supervisor {
        Some(supervisor) => command(
            program(),
            (Role::Supervisor, &format!("supervisor of {dir}")),
            &supervisor.words(),
        ),
        None => command(
            program(),
            (Role::LoneServer, &format!("serves {dir}")),
            &[end(ends_with_caller).into()],
        ),
    };
    let (mut command, secrets) = command.map_err(starting)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(starting)?;
    drop(secrets);
    let mut answer = [0];
    if let Some(mut pipe) = child.stdout.take()
        && pipe.read_exact(&mut answer).is_ok()
    {
        return Ok(Exit::Ok);
    }
    let status = child.wait();
    let status =
        status.map_err(|error| failed("waiting for the process in the background", &error))?;
    if let Some(signal) = status.signal() {
        let message =
            format!("the process that should serve the mount was killed by signal {signal}");
        return Err(Failure::new(Exit::Mount, "mount", message));
    }
    Ok(exit_of(status))
}

/// Returns the exit code of a process that has reported its error itself.
fn exit_of(status: ExitStatus) -> Exit {
    let all = [
        Exit::Image,
        Exit::Usage,
        Exit::Format,
        Exit::Source,
        Exit::Output,
    ];
    let mut all = all.into_iter();
    let same = all.find(|exit| Some(i32::from(exit.code())) == status.code());
    same.unwrap_or(Exit::Mount)
}

/// Returns the command that runs the newest installed program with the arguments of this process,
/// to serve this process's mount. The second value is the same as that of [`command`].
pub fn server_command(
    namespace: Option<&MountNamespace>,
) -> io::Result<(Command, Option<OwnedFd>)> {
    let supervisor = SupervisorArgs::of_this_process();
    let dir = supervisor
        .map(|supervisor| supervisor.dir)
        .unwrap_or_default();
    let title = format!("serves {}", dir.display());
    let words = namespace_words(namespace);
    command(newest_program(), (Role::Server, &title), &words)
}

/// Returns the command that runs `program` in a role, with the words of the role and the arguments
/// of this process. The second value holds arguments with passwords, and must live until the
/// process was started.
pub fn command(
    program: PathBuf,
    (role, title): (Role, &str),
    words: &[OsString],
) -> io::Result<(Command, Option<OwnedFd>)> {
    let mut command = Command::new(program);
    role::assign(&mut command, role, title);
    let argv = secrets::arguments();
    // The helper of mount(8) is recognised by its name.
    command.args(words).arg("--").args(argv.first());
    // The command after `--` is run once, by `mount`. Other programs' names accept none.
    let end = argv.iter().position(|word| word == "--");
    let end = end.filter(|_| forerun_compat::program(argv).is_none());
    let secrets = secrets::pass_on(&mut command, end.map_or(argv, |end| &argv[..end]))?;
    Ok((command, secrets))
}

/// Returns the path from which this process was started. After an upgrade, it has the new program.
pub fn newest_program() -> PathBuf {
    let Ok(itself) = std::env::current_exe() else {
        return program();
    };
    // The kernel's mark of a deleted file.
    let named = itself.as_os_str().as_bytes();
    let named = named.strip_suffix(b" (deleted)").unwrap_or(named);
    let named = PathBuf::from(OsStr::from_bytes(named));
    if named.is_file() { named } else { program() }
}

/// Returns a path to this program: the one that keeps its name in the list of processes, if it
/// still refers to this program.
pub fn program() -> PathBuf {
    let itself = PathBuf::from("/proc/self/exe");
    let named = std::env::current_exe().ok().filter(|path| path.is_file());
    named.unwrap_or(itself)
}

/// Leaves the caller's job, so that Ctrl-C and the end of the terminal do not affect this process.
///
/// The session stays the caller's. The kernel shares processors among sessions (autogroup), and a
/// thread that waits for an answer stays on its CPU only if the answering thread is in the same
/// session: `ls -lR` on a mount of another session takes up to half as long again.
pub fn leave_job() -> Result<()> {
    match rustix::process::setpgid(None, None) {
        // A session leader already leads a group.
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(failed("leaving the process group", &error.into())),
    }
    // A terminal with `stty tostop` stops background processes that write to it, so an error before
    // the mount is made would never appear. Threads and child processes inherit the blocked signal.
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    let blocked = stops.thread_block();
    blocked.map_err(|error| failed("blocking SIGTTOU", &error.into()))
}

/// Tells the caller that the mount answers, and releases resources that others may need: the
/// working directory and the three standard files.
pub fn ready(log: Option<File>) -> Result<()> {
    settle(log, true)
}

/// Like [`ready`], for a mount that was taken over: it stays even if no caller waits.
pub fn ready_to_go_on(log: Option<File>) -> Result<()> {
    settle(log, false)
}

/// Redirects standard error to the log or to `/dev/null`, because the old process's pipe ends with
/// that process.
pub fn settle_stderr(log: Option<&File>) {
    let null = File::options().write(true).open("/dev/null");
    let redirected = match (log, &null) {
        (Some(file), _) | (None, Ok(file)) => rustix::stdio::dup2_stderr(file),
        (None, Err(_)) => Ok(()),
    };
    if let Err(error) = redirected {
        tracing::warn!("redirecting standard error: {error}");
    }
}

/// Redirects standard output to `/dev/null`, so that the caller's pipe can end.
pub fn close_stdout() -> Result<()> {
    let null = File::options().write(true).open("/dev/null");
    let null = null.map_err(|error| failed("/dev/null", &error))?;
    let redirected = rustix::stdio::dup2_stdout(null);
    redirected.map_err(|error| failed("redirecting output", &error.into()))
}

/// Releases a supervisor's working directory and the caller's standard error.
pub fn settle_supervisor(log: Option<File>) -> Result<()> {
    let changed = std::env::set_current_dir("/");
    changed.map_err(|error| failed("changing to /", &error))?;
    settle_stderr(log.as_ref());
    inherited::close_named();
    Ok(())
}

fn settle(log: Option<File>, caller_is_needed: bool) -> Result<()> {
    let redirecting = |error: Errno| failed("redirecting output", &error.into());
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| failed("/dev/null", &error))?;
    std::env::set_current_dir("/").map_err(|error| failed("changing to /", &error))?;
    rustix::stdio::dup2_stderr(log.as_ref().unwrap_or(&null)).map_err(redirecting)?;
    let mut stdout = io::stdout();
    // If the caller is gone, it was interrupted and wants no mount. The error unmounts.
    let told = stdout.write_all(READY).and_then(|()| stdout.flush());
    match told {
        Err(error) if !caller_is_needed => {
            tracing::debug!("the process that asked for the new one is gone: {error}")
        }
        told => told.map_err(|error| failed("telling the caller", &error))?,
    }
    rustix::stdio::dup2_stdout(&null).map_err(redirecting)?;
    inherited::close_named();
    Ok(())
}
