//! The process outside of the sandbox: answers the requests of its server until that ends.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::packet::{self, Packet};
use super::{parse_device, word};
use crate::attach::attach;
use crate::guardian::Guardian;
use crate::mountpoint::resolve;
use crate::unmounter::Unmounter;
use crate::{MountOptions, Unmounted, bdi};

/// Starts a process that takes the mount over from the server of this number, with these standard
/// files.
pub type StartSuccessor<'s> = &'s mut dyn FnMut(&str, [OwnedFd; 3]) -> io::Result<Child>;

/// What the process knows of the one mount that it serves.
struct Serving<'s> {
    path: PathBuf,
    options: &'s MountOptions,
    /// Set once, when the mount is made or taken over.
    device: Option<(u32, u32)>,
    start: StartSuccessor<'s>,
    successor: Option<Child>,
}

type Answer = Result<(String, Vec<OwnedFd>), String>;

/// Answers requests from `socket` about a mount on `dir` with these options. Returns when the server
/// has ended.
///
/// # Errors
/// Those of the socket, and of a `dir` that leads nowhere.
pub fn serve_outside(
    socket: &OwnedFd,
    dir: &Path,
    options: &MountOptions,
    start: StartSuccessor<'_>,
) -> io::Result<()> {
    let mut serving = Serving {
        path: resolve(dir)?,
        options,
        device: None,
        start,
        successor: None,
    };
    while let Some(request) = packet::receive(socket)? {
        let (word, text, descriptors) = match serving.answer(request) {
            Ok((text, descriptors)) if text == word::IN_USE => (text, String::new(), descriptors),
            Ok((text, descriptors)) => (word::DONE.to_string(), text, descriptors),
            Err(why) => (word::FAILED.to_string(), why, Vec::new()),
        };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        packet::send(socket, format!("{word} {text}").as_bytes(), &descriptors)?;
    }
    Ok(())
}

fn only(text: impl Into<String>) -> Answer {
    Ok((text.into(), Vec::new()))
}

impl Serving<'_> {
    fn answer(&mut self, request: Packet) -> Answer {
        let failed = |error: io::Error| error.to_string();
        match &*request.word {
            word::ATTACH => self.attach(request.text == "rw"),
            word::ADOPT => self.adopt(&request),
            word::UNMOUNT => self.unmount(&request.descriptors),
            word::LIFT => self.lift(&request.text),
            word::CALL => call_of(&request.text).map_err(failed).and_then(only),
            word::SUCCEED => self.succeed(request).map_err(failed),
            word::END => self.end_successor().map_err(failed),
            _ => Err("not a request".to_string()),
        }
    }

    fn attach(&mut self, writable: bool) -> Answer {
        if self.device.is_some() {
            return Err("mounted already".to_string());
        }
        let source = self.options.fsname.clone();
        let source = OsString::from(source.unwrap_or_else(|| "forerun".into()));
        let connection = attach(&self.path, &source, self.options, writable);
        let connection = connection.map_err(|error| error.to_string())?;
        // From here on a failure takes the mount down again.
        let unmounter = Unmounter::new(self.path.clone(), &connection, false);
        let unmounter = unmounter.map_err(|error| error.to_string())?;
        let device = unmounter.device();
        let guardian = self
            .options
            .auto_unmount
            .then(|| Guardian::start(&self.path, device));
        let mut descriptors = vec![connection];
        match guardian.transpose() {
            Ok(guardian) => descriptors.extend(guardian.and_then(Guardian::into_pipe)),
            Err(error) => {
                let _taken_down = unmounter.unmount();
                return Err(crate::MountError::Guardian(error).to_string());
            }
        }
        self.device = Some(device);
        Ok((format!("{} {}", device.0, device.1), descriptors))
    }

    /// The server takes over a mount that another one has made.
    fn adopt(&mut self, request: &Packet) -> Answer {
        let mut parts = request.bytes.splitn(3, |&byte| byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok();
        let device = match (number(), number()) {
            (Some(major), Some(minor)) => parse_device(&format!("{major} {minor}")),
            _ => None,
        };
        match (self.device, device, parts.next()) {
            (None, Some(device), Some(path)) => {
                self.device = Some(device);
                self.path = PathBuf::from(OsStr::from_bytes(path));
                only("")
            }
            _ => Err("not a mount that can be taken over".to_string()),
        }
    }

    fn unmount(&self, descriptors: &[OwnedFd]) -> Answer {
        let (Some(connection), Some(device)) = (descriptors.first(), self.device) else {
            return Err("nothing is mounted".to_string());
        };
        let unmounter = Unmounter::inherited(self.path.clone(), device, connection, None);
        let unmounted = unmounter
            .map_err(|error| error.to_string())
            .and_then(|unmounter| unmounter.unmount().map_err(|error| error.to_string()));
        match unmounted? {
            Unmounted::Done => only(""),
            Unmounted::StillInUse => only(word::IN_USE),
        }
    }

    fn lift(&self, readahead: &str) -> Answer {
        match (self.device, readahead.parse()) {
            (Some(device), Ok(readahead)) if bdi::lift(device, readahead) => only(""),
            _ => Err("the readahead stays".to_string()),
        }
    }

    fn succeed(&mut self, request: Packet) -> io::Result<(String, Vec<OwnedFd>)> {
        let files: Result<[OwnedFd; 3], _> = request.descriptors.try_into();
        let files = files.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.end_successor()?;
        self.successor = Some((self.start)(&request.text, files)?);
        Ok((String::new(), Vec::new()))
    }

    fn end_successor(&mut self) -> io::Result<(String, Vec<OwnedFd>)> {
        if let Some(mut child) = self.successor.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok((String::new(), Vec::new()))
    }
}

/// What `/proc` says of the system call that a thread is in.
fn call_of(thread: &str) -> io::Result<String> {
    let thread: u32 = thread.parse().map_err(io::Error::other)?;
    fs::read_to_string(format!("/proc/{thread}/syscall"))
}
