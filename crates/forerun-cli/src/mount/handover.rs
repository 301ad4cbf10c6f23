//! The process that serves a mount starts its successor, and is one.
//!
//! The successor is this program as it is on disk now, with the arguments and in the directory that
//! the mount was begun with. It has a socket for its standard input, over which it is offered the
//! mount (see [`forerun_fuse::Giver`]), and the connection of whoever asked for the restart for its
//! standard output: the byte on it says that the mount is served anew. What goes wrong before that it
//! says on its standard error, to be passed on by the old process, which goes on serving.

use std::fs::Metadata;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use forerun::remote::RemoteImage;
use forerun_fuse::{Giver, Inherited, Mount, MountOptions, Outside};

use super::{MountArgs, daemon};
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;

/// Says to a new process whose successor it is. A variable left over from elsewhere names another.
const PREDECESSOR: &str = "FORERUN_MOUNT_PREDECESSOR";
/// How long a new process may take to open the image: servers may be slow.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one that has failed may take to end by itself.
const PARTING: Duration = Duration::from_secs(5);
/// The most that is passed on of what it says.
const MAX_WORDS: usize = 16 << 10;

/// How the mount of this process goes over to another.
pub struct Succession {
    giver: Giver,
    identity: Vec<u8>,
    /// Where relative names of the command line begin.
    directory: PathBuf,
    /// What starts the other process where this one may not.
    outside: Option<Outside>,
    /// Why not at all.
    refused: Option<&'static str>,
    under_way: AtomicBool,
}

impl Succession {
    /// For a mount that has just begun.
    pub fn new(
        args: &MountArgs,
        mount: &Mount,
        identity: Vec<u8>,
        outside: Option<Outside>,
    ) -> Self {
        let refused = if args.foreground {
            Some("its process runs in the foreground (-f): whoever started it must start it again")
        } else if args.trace.is_some() {
            Some("its process records a trace, which would begin anew")
        } else if args.remote.record.is_some() {
            Some("its process records an access list, which would begin anew")
        } else {
            None
        };
        Self {
            giver: mount.giver(),
            identity,
            directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            outside,
            refused,
            under_way: AtomicBool::new(false),
        }
    }

    /// Whether this is the device number of the mount.
    pub fn is_of(&self, device: &str) -> bool {
        let (major, minor) = self.device();
        device == format!("{major}:{minor}")
    }

    /// Number of the filesystem.
    pub const fn device(&self) -> (u32, u32) {
        self.giver.device()
    }

    /// Hands the mount to a new process, and ends this one, with its `socket`. If that fails, whoever
    /// asked is told, and all stays as it was.
    pub fn begin(self: &Arc<Self>, asker: UnixStream, socket: &Path) {
        if self.under_way.swap(true, Ordering::AcqRel) {
            return tell(&asker, "a restart is under way already");
        }
        let this = Arc::clone(self);
        let socket = socket.to_path_buf();
        let thread = std::thread::Builder::new().name("restart".to_string());
        let started = thread.spawn(move || {
            let words = match this.succeed(&asker) {
                Ok(()) => {
                    let _gone = std::fs::remove_file(socket);
                    std::process::exit(Exit::Ok.code().into())
                }
                Err(words) => words,
            };
            tell(&asker, &words);
            tracing::warn!("not restarted: {words}");
            this.under_way.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.under_way.store(false, Ordering::Release);
        }
    }

    fn succeed(&self, asker: &UnixStream) -> std::result::Result<(), String> {
        if let Some(why) = self.refused {
            return Err(why.to_string());
        }
        let text = |error: forerun_fuse::HandoverError| without_errno(&error.to_string());
        let starting = |error: io::Error| without_errno(&format!("starting a process: {error}"));
        let (offered, theirs) = self.giver.offer(&self.identity).map_err(text)?;
        let stdout = OwnedFd::from(asker.try_clone().map_err(starting)?);
        let (stderr, theirs_too) = io::pipe().map_err(starting)?;
        let files = [theirs, stdout, theirs_too.into()];
        let child = self.start(files).map_err(starting)?;
        let words = listen(stderr);
        if let Err(error) = offered.wait(PATIENCE) {
            drop(offered);
            return Err(last_words(child, words, &text(error)));
        }
        tracing::info!("going on in another process");
        // It is told that we go on before we are.
        if let Err(error) = offered.commit() {
            let why = text(error);
            // What it says by now is not about this.
            last_words(child, words, &why);
            return Err(why);
        }
        Ok(())
    }
}

impl Succession {
    /// Starts the new process with these standard files.
    fn start(&self, files: [OwnedFd; 3]) -> io::Result<Started> {
        if let Some(outside) = &self.outside {
            outside.succeed([files[0].as_fd(), files[1].as_fd(), files[2].as_fd()])?;
            return Ok(Started::Outside(outside.clone()));
        }
        let [stdin, stdout, stderr] = files.map(Stdio::from);
        successor(&std::process::id().to_string(), daemon::newest_program())
            .current_dir(&self.directory)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map(Started::Here)
    }
}

/// The new process.
enum Started {
    /// A child of this one.
    Here(Child),
    /// One that the process outside of the sandbox has started.
    Outside(Outside),
}

impl Started {
    fn kill(&mut self) {
        let _is_ended = match self {
            Self::Here(child) => child.kill().and_then(|()| child.wait()).map(drop),
            Self::Outside(outside) => outside.end_successor(),
        };
    }
}

/// The command that starts a successor of the server of that number.
pub fn successor(server: &str, program: PathBuf) -> Command {
    let mut command = daemon::command(program);
    command.env(PREDECESSOR, server);
    command
}

/// Says to a process that it is nobody's successor.
pub fn without_predecessor(command: &mut Command) -> &mut Command {
    command.env_remove(PREDECESSOR)
}

/// Says why not.
fn tell(mut asker: &UnixStream, words: &str) {
    // Whoever has gone away does not want to know.
    let _gone = asker.write_all(words.trim_end().as_bytes());
}

/// What a process says until it ends.
type Words = Option<Receiver<Vec<u8>>>;

/// Takes what it says, so that it is never held up.
fn listen(mut stderr: PipeReader) -> Words {
    let (all, heard) = sync_channel(1);
    let thread = std::thread::Builder::new().name("restart-words".to_string());
    let listening = thread.spawn(move || {
        let (mut words, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stderr.read(&mut piece) {
            let room = MAX_WORDS.saturating_sub(words.len());
            words.extend_from_slice(piece.get(..count.min(room)).unwrap_or_default());
        }
        let _nobody_asks = all.send(words);
    });
    listening.ok().map(|_| heard)
}

/// Waits for its end, if need be brings it about; gives what it said, or else what we say.
fn last_words(mut child: Started, words: Words, else_said: &str) -> String {
    let heard = words.and_then(|words| {
        let by_itself = words.recv_timeout(PARTING).ok();
        child.kill();
        by_itself.or_else(|| words.recv_timeout(PARTING).ok())
    });
    child.kill();
    let words = String::from_utf8_lossy(&heard.unwrap_or_default()).into_owned();
    match words.trim() {
        "" => else_said.to_string(),
        words => words.strip_prefix("forerun: ").unwrap_or(words).to_string(),
    }
}

/// The mount that the process that started this one offers, where it does.
pub fn inherited() -> Result<Option<Inherited>> {
    let Some(predecessor) = std::env::var(PREDECESSOR).ok() else {
        return Ok(None);
    };
    let stdin = io::stdin();
    let Ok(peer) = rustix::net::sockopt::socket_peercred(&stdin) else {
        return Ok(None);
    };
    if peer.pid.as_raw_nonzero().to_string() != predecessor {
        return Ok(None);
    }
    let lost = |error: io::Error| super::failed("the socket of the old process", &error);
    let socket = stdin.as_fd().try_clone_to_owned().map_err(lost)?;
    let null = std::fs::File::open("/dev/null").map_err(lost)?;
    rustix::stdio::dup2_stdin(null).map_err(|error| lost(error.into()))?;
    let inherited = Inherited::receive(socket);
    let inherited = inherited.map_err(|error| failure(&error.to_string()))?;
    Ok(Some(inherited))
}

fn failure(message: &str) -> Failure {
    Failure::new(Exit::Mount, "restart", without_errno(message))
}

/// What tells the image from one that was put in its place: the digest or the like of what is at a
/// server; of files where they are, how long, and when they were changed.
pub fn identity(
    args: &MountArgs,
    options: &MountOptions,
    remote: Option<&Arc<RemoteImage>>,
) -> Vec<u8> {
    let mut identity = match remote {
        Some(image) => image.identity().to_string().into_bytes(),
        None => of_file(&args.image),
    };
    for device in &options.devices {
        identity.push(b' ');
        identity.extend(of_file(device));
    }
    identity
}

fn of_file(path: &Path) -> Vec<u8> {
    let of = |metadata: Metadata| match metadata.file_type().is_block_device() {
        true => format!("device {}", metadata.rdev()),
        false => format!(
            "file {} {} {} {}.{}",
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec()
        ),
    };
    match path.metadata() {
        Ok(metadata) => of(metadata).into_bytes(),
        Err(_) => path.as_os_str().as_bytes().to_vec(),
    }
}
