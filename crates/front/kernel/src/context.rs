//! Builds a mount with fsopen(2), fsconfig(2) and fsmount(2), and collects the kernel's messages
//! when it refuses.

use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_fd, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::path::Arg;

use crate::drivers::from_file;
use crate::error::{Error, Refusal};
use crate::kernel_log::KernelLog;
use crate::options::Options;
use crate::readahead::Before;

const MESSAGE_LEN: usize = 4096;
/// Maximum number of messages read per refusal; the kernel keeps eight.
const MOST_MESSAGES: usize = 16;

/// Returns an error if this process may not mount `fstype`. Root in a user namespace can open a
/// context and would be refused only by the mount itself, after the loop device is set up.
pub fn check_permission(fstype: &'static str) -> Result<(), Error> {
    let context = Context::open(fstype, String::new())?;
    match fsconfig_create(&context.context) {
        Err(Errno::PERM) => Err(Error::NotPermitted { fstype }),
        // fsconfig(2) reached the driver, which failed because no source was given: mounting is
        // permitted.
        _ => Ok(()),
    }
}

/// A superblock under construction.
#[derive(Debug)]
pub struct Context {
    fstype: &'static str,
    what: String,
    context: OwnedFd,
    log: KernelLog,
}

impl Context {
    /// Opens a context for the driver `fstype`; the kernel may load the module. `what` names the
    /// attempt in error messages.
    pub fn open(fstype: &'static str, what: String) -> Result<Self, Error> {
        let log = KernelLog::now();
        match fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(context) => Ok(Self {
                fstype,
                what,
                context,
                log,
            }),
            Err(Errno::NODEV) => Err(Error::NoDriver { fstype }),
            Err(Errno::NOSYS) => Err(Error::NoMountApi),
            Err(Errno::PERM) => Err(Error::NotPermitted { fstype }),
            Err(error) => {
                let step = "opening a context";
                Err(refused(what, step.to_string(), error, Vec::new()))
            }
        }
    }

    pub fn set(self, key: &str, value: impl Arg + Copy) -> Result<Self, Error> {
        match fsconfig_set_string(&self.context, key, value) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.refused(option(key, value.to_string_lossy()), error)),
        }
    }

    /// Sets an option that takes no value.
    pub fn set_flag(self, key: &str) -> Result<Self, Error> {
        match fsconfig_set_flag(&self.context, key) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.refused(key.to_string(), error)),
        }
    }

    /// Sets an option that takes no value; ignores the error if the driver lacks the option.
    pub fn set_flag_if_known(self, key: &str) -> Self {
        if let Err(error) = fsconfig_set_flag(&self.context, key) {
            // Drain the log, so that a later refusal does not report this message.
            let said = messages(&self.context);
            tracing::debug!(%error, ?said, "the kernel does not support {key}");
        }
        self
    }

    pub fn set_fd(self, key: &str, file: impl AsFd) -> Result<Self, Error> {
        match fsconfig_set_fd(&self.context, key, file) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.refused(option(key, "(an open directory)"), error)),
        }
    }

    /// Creates the superblock and a detached, read-only mount of it.
    pub fn mount(self, options: &Options) -> Result<OwnedFd, Error> {
        self.mount_as(attributes(options, true))
    }

    /// Creates the superblock and a detached mount of it, writable unless the options say otherwise.
    pub fn mount_writable(self, options: &Options) -> Result<OwnedFd, Error> {
        self.mount_as(attributes(options, options.read_only))
    }

    fn mount_as(self, attributes: MountAttrFlags) -> Result<OwnedFd, Error> {
        let before = from_file(self.fstype).map(|of| Before::look(of.readahead));
        if let Err(error) = fsconfig_create(&self.context) {
            return Err(self.refused(String::new(), error));
        }
        if let Some(before) = before {
            before.lift();
        }
        match fsmount(&self.context, FsMountFlags::FSMOUNT_CLOEXEC, attributes) {
            Ok(mount) => Ok(mount),
            Err(error) => Err(self.refused("fsmount".to_string(), error)),
        }
    }

    fn refused(self, step: String, error: Errno) -> Error {
        if error == Errno::PERM {
            let fstype = self.fstype;
            return Error::NotPermitted { fstype };
        }
        let mut words = messages(&self.context);
        words.extend(self.log.words(self.fstype));
        refused(self.what, step, error, words)
    }
}

fn option(key: &str, value: impl Display) -> String {
    format!("option {}={value}", key.trim_end_matches('='))
}

fn refused(what: String, step: String, error: Errno, words: Vec<String>) -> Error {
    Error::Refused(vec![Refusal {
        what,
        step,
        error: error.into(),
        words,
    }])
}

/// Returns the driver's messages from the context's log. Warnings keep their prefix `w `,
/// information keeps `i `.
fn messages(context: &OwnedFd) -> Vec<String> {
    let mut messages = Vec::new();
    let mut buffer = vec![0; MESSAGE_LEN];
    while messages.len() < MOST_MESSAGES {
        let Ok(len) = rustix::io::read(context, &mut buffer[..]) else {
            break;
        };
        let Some(text) = buffer.get(..len).filter(|text| !text.is_empty()) else {
            break;
        };
        let text = String::from_utf8_lossy(text);
        let text = text.trim();
        let text = text.strip_prefix("e ").unwrap_or(text);
        messages.push(text.to_string());
    }
    messages
}

fn attributes(options: &Options, read_only: bool) -> MountAttrFlags {
    let mut flags = MountAttrFlags::empty();
    flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, read_only);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !options.suid);
    flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, !options.dev);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, !options.exec);
    flags
}
