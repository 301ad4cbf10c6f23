//! The link between a serving process and its [`supervisor`](super::supervisor). The process hands
//! its mount over to a successor when the supervisor asks for it.
//!
//! The supervisor's socket is the standard input of the process. The first message on it says
//! whether to make a mount or to take one over.

use std::fs::Metadata;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use forerun::unstable::DiskImage;
use forerun::unstable::remote::RemoteImage;
use forerun_fuse::{Channel, FromServer, FromSupervisor, Giver, Inherited, Mount, MountOptions};

use super::MountArgs;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;
use crate::role::{self, Role};

/// The first message from a supervisor to a new server.
pub struct Kept {
    pub supervisor: Arc<Channel>,
    /// The mount to take over. `None` if the process must make one.
    pub inherited: Option<Inherited>,
}

/// Receives the supervisor's message. Returns `None` if no supervisor started this process.
pub fn kept() -> Result<Option<Kept>> {
    let stdin = io::stdin();
    if !role::is(Role::Server) {
        return Ok(None);
    }
    let peer = rustix::net::sockopt::socket_peercred(&stdin);
    // Only the parent can be the supervisor of this mount.
    if peer.ok().map(|peer| peer.pid) != rustix::process::getppid() {
        return Err(failure("the process that keeps the mount has ended"));
    }
    let lost = |error: io::Error| super::failed("the socket of the supervisor", &error);
    let supervisor = Channel::from(stdin.as_fd().try_clone_to_owned().map_err(lost)?);
    let null = std::fs::File::open("/dev/null").map_err(lost)?;
    rustix::stdio::dup2_stdin(null).map_err(|error| lost(error.into()))?;
    let said = FromSupervisor::receive(&supervisor);
    let inherited = match said.map_err(|error| failure(&error.to_string()))? {
        FromSupervisor::Make => None,
        FromSupervisor::Take(inherited) => Some(*inherited),
        _ => return Err(failure("the process that keeps the mount has ended")),
    };
    Ok(Some(Kept {
        supervisor: Arc::new(supervisor),
        inherited,
    }))
}

/// The handover of this process's mount to another process.
pub struct Succession {
    giver: Giver,
    /// The channel to the supervisor, or the reason why there is none.
    supervisor: std::result::Result<Arc<Channel>, String>,
    /// The socket on which this process answers `forerun status`.
    socket: OnceLock<PathBuf>,
}

impl Succession {
    pub fn new(
        args: &MountArgs,
        mount: &Mount,
        identity: &[u8],
        kept: Option<(Arc<Channel>, bool)>,
    ) -> Result<Arc<Self>> {
        let giver = mount.giver();
        let supervisor = match kept {
            None => Err(why_not_kept(args).to_string()),
            Some((supervisor, true)) => Ok(supervisor),
            Some((supervisor, false)) => match giver.keep(&supervisor, identity) {
                Ok(()) => Ok(supervisor),
                Err(why) => {
                    let why = without_errno(&why.to_string());
                    tracing::info!("the mount ends with this process: {why}");
                    let told = FromServer::alone(&supervisor);
                    told.map_err(|error| super::failed("the socket of the supervisor", &error))?;
                    Err(why)
                }
            },
        };
        let this = Arc::new(Self {
            giver,
            supervisor,
            socket: OnceLock::new(),
        });
        this.listen()?;
        Ok(this)
    }

    pub fn is_of(&self, device: &str) -> bool {
        let (major, minor) = self.device();
        device == format!("{major}:{minor}")
    }

    pub const fn device(&self) -> (u32, u32) {
        self.giver.device()
    }

    pub fn supervisor(&self) -> Option<i32> {
        let is_kept = self.supervisor.is_ok();
        let parent = rustix::process::getppid().filter(|_| is_kept);
        parent.map(|pid| pid.as_raw_nonzero().get())
    }

    /// Records the status socket, which is removed when this process leaves.
    pub fn asked_at(&self, socket: &Path) {
        let _is_set_once = self.socket.set(socket.to_path_buf());
    }

    /// Asks the supervisor to start a successor, which ends this process. If that fails, tells
    /// `asker` why and changes nothing.
    pub fn begin(&self, asker: &UnixStream) {
        let asked = match &self.supervisor {
            Err(why) => Err(why.clone()),
            Ok(supervisor) => match self.giver.check() {
                Err(why) => Err(without_errno(&why.to_string())),
                Ok(()) => FromServer::restart(supervisor, asker.as_fd())
                    .map_err(|_| "the process that keeps the mount has ended".to_string()),
            },
        };
        if let Err(why) = asked {
            // A caller that has disconnected needs no answer.
            let _gone = (&*asker).write_all(why.as_bytes());
            tracing::warn!("not restarted: {why}");
        }
    }

    /// Tells the supervisor that the mount ends with this process, which the supervisor may not see
    /// by itself.
    pub fn done(&self) {
        if let Ok(supervisor) = &self.supervisor {
            // A supervisor that has ended starts no other process.
            let _gone = FromServer::done(supervisor);
        }
    }

    /// Starts a thread that carries out the supervisor's messages.
    fn listen(self: &Arc<Self>) -> Result<()> {
        let Ok(supervisor) = &self.supervisor else {
            return Ok(());
        };
        let (this, supervisor) = (Arc::clone(self), Arc::clone(supervisor));
        let thread = std::thread::Builder::new().name("supervisor".to_string());
        let listening = thread.stack_size(128 << 10).spawn(move || {
            loop {
                match FromSupervisor::receive(&supervisor) {
                    Ok(FromSupervisor::Leave) => this.leave(&supervisor),
                    Ok(FromSupervisor::End) => break,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::error!("the supervisor: {error}");
                        break;
                    }
                }
            }
            tracing::warn!(
                "the process that keeps the mount has ended: the mount ends with this one"
            );
        });
        listening.map_err(|error| super::failed("listening to the supervisor", &error))?;
        Ok(())
    }

    /// Ends this process, or tells the supervisor why not.
    fn leave(&self, supervisor: &Channel) {
        let end = || {
            tracing::info!("going on in another process");
            // Closing the socket, which follows, has the same meaning.
            let _gone = FromServer::leaving(supervisor);
            if let Some(socket) = self.socket.get() {
                let _gone = std::fs::remove_file(socket);
            }
            std::process::exit(Exit::Ok.code().into())
        };
        if let Err(why) = self.giver.leave(end) {
            let told = FromServer::staying(supervisor, &without_errno(&why.to_string()));
            if let Err(error) = told {
                tracing::warn!("the supervisor: {error}");
            }
        }
    }
}

/// Returns whether a mount with these arguments never has a supervisor, whatever the kernel
/// supports.
pub fn is_alone(args: &MountArgs, options: &MountOptions) -> bool {
    let is_made = forerun_fuse::is_descriptor(&args.dir);
    is_made || options.restarts == 0 || args.trace.is_some() || args.remote.are_recorded()
}

fn why_not_kept(args: &MountArgs) -> &'static str {
    if args.foreground {
        "its process runs in the foreground (-f): start it again where it was started"
    } else if args.trace.is_some() {
        "its process records a trace, which would start again from the beginning"
    } else if args.remote.are_recorded() {
        "its process records an access list, which would start again from the beginning"
    } else if forerun_fuse::is_descriptor(&args.dir) {
        "another program mounted it, and only that program knows where"
    } else {
        "it was mounted with restarts=0, so it has no supervisor"
    }
}

fn failure(message: &str) -> Failure {
    Failure::new(Exit::Mount, "restart", without_errno(message))
}

/// Returns bytes that differ if another image has replaced this one: the digest or version of a
/// remote image; inode, length and modification time of files.
pub fn identity(args: &MountArgs, options: &MountOptions, remotes: &[Arc<RemoteImage>]) -> Vec<u8> {
    let images = match args.layers.as_slice() {
        [] => std::slice::from_ref(&args.image),
        layers => layers,
    };
    let local = images
        .iter()
        .filter(|image| !crate::remote::is_remote(image));
    let of_local = |image: &PathBuf| match DiskImage::parse(image) {
        Some(image) => of_file(&image.index_file()),
        None => of_file(image),
    };
    let mut parts: Vec<Vec<u8>> = local.map(of_local).collect();
    // Remote images are in the order in which they were opened: a container image has several.
    let of_remote = |image: &Arc<RemoteImage>| image.identity().to_string().into_bytes();
    parts.extend(remotes.iter().map(of_remote));
    parts.extend(options.devices.iter().map(|device| of_file(device)));
    parts.join(&b' ')
}

/// Returns the same as [`identity`] for a writable volume.
pub fn identity_of_volume(args: &MountArgs) -> Vec<u8> {
    match args.image.metadata() {
        Ok(metadata) if !metadata.file_type().is_block_device() => {
            format!("file {} {}", metadata.dev(), metadata.ino()).into_bytes()
        }
        _ => of_file(&args.image),
    }
}

fn of_file(path: &Path) -> Vec<u8> {
    let of = |metadata: Metadata| {
        if metadata.file_type().is_block_device() {
            format!("device {}", metadata.rdev())
        } else {
            format!(
                "file {} {} {} {}.{}",
                metadata.dev(),
                metadata.ino(),
                metadata.len(),
                metadata.mtime(),
                metadata.mtime_nsec()
            )
        }
    };
    match path.metadata() {
        Ok(metadata) => of(metadata).into_bytes(),
        Err(_) => path.as_os_str().as_bytes().to_vec(),
    }
}
