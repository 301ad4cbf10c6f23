//! Attaching a FUSE connection to a directory.
//!
//! mount(2) is tried first, whoever asks: root may, and so may the "root" of a user namespace, which
//! a look at the user id could not tell from a root without the capability. Where it is not
//! permitted, fusermount3 does it, a set-user-id program of the fuse3 package that sends the open
//! device back over a socket. It also does whatever has to outlive us: with `auto_unmount` it stays
//! until the socket closes, which it does however we die.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::{MountError, MountOptions};

/// Mounts on `dir`, which exists and is absolute. Gives the connection to serve it on.
pub fn attach(
    dir: &Path,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<OwnedFd, MountError> {
    match directly(dir, source, options, writable) {
        Ok(device) => Ok(device),
        Err(Refused::Permission) => by_helper(dir, source, options, writable),
        Err(Refused::Error(error)) => Err(error),
    }
}

enum Refused {
    /// Not for us; somebody else may.
    Permission,
    Error(MountError),
}

fn directly(
    dir: &Path,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<OwnedFd, Refused> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|source| Refused::Error(MountError::Device { source }))?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if options.kernel_checks() {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let system = |source: Errno| {
        Refused::Error(MountError::System {
            path: dir.to_path_buf(),
            source: source.into(),
        })
    };
    let data = CString::new(data).map_err(|_| system(Errno::INVAL))?;
    let fstype = match options.subtype.as_str() {
        "" => "fuse".to_string(),
        subtype => format!("fuse.{subtype}"),
    };
    match rustix::mount::mount(
        source,
        dir,
        fstype,
        flags(options, writable),
        data.as_c_str(),
    ) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM | Errno::ACCESS) => Err(Refused::Permission),
        Err(error) => Err(system(error)),
    }
}

/// The flags of a mount under these options.
pub fn flags(options: &MountOptions, writable: bool) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, !writable);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags
}

fn by_helper(
    dir: &Path,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<OwnedFd, MountError> {
    for (asked, option) in [(options.suid, "suid"), (options.dev, "dev")] {
        if asked {
            return Err(MountError::NeedsRoot { option });
        }
    }
    let program = find_helper().ok_or(MountError::NoHelper)?;
    let failed = |message: String| MountError::Helper {
        message: without_name(&program, message),
        program: program.clone(),
    };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| failed(error.to_string()))?;
    // As its standard input the socket needs no inherited descriptor. The command is dropped at the
    // end of the statement, and our copy of the helper's end with it: its death is then our end of
    // file.
    let process = Command::new(&program)
        .arg("-o")
        .arg(helper_options(source, options, writable))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let Some(device) = receive_device(&ours) else {
        return Err(failed(last_words(process)));
    };
    drop(ours);
    let words = last_words(process);
    if !words.is_empty() {
        tracing::warn!("{}: {}", program.display(), words.trim());
    }
    Ok(device)
}

/// What the helper said before it ended.
fn last_words(mut process: Child) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = process.stderr.take() {
        // More than that is no error message.
        let _as_far_as_it_goes = stderr.take(64 << 10).read_to_end(&mut words);
    }
    match process.wait() {
        Ok(status) if words.is_empty() && !status.success() => status.to_string(),
        Ok(_) | Err(_) => String::from_utf8_lossy(&words).into_owned(),
    }
}

/// A program's message without its name in front, which an error has anyway.
pub fn without_name(program: &Path, message: String) -> String {
    let name = program.display().to_string();
    let rest = message
        .strip_prefix(&name)
        .and_then(|rest| rest.strip_prefix(": "));
    match rest {
        Some(rest) => rest.to_string(),
        None => message,
    }
}

/// The open device, which comes along with one byte; nothing where the helper ended without.
fn receive_device(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut bytes = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

fn helper_options(source: &OsStr, options: &MountOptions, writable: bool) -> OsString {
    let mut list = OsString::from(if writable { "rw" } else { "ro" });
    if !options.subtype.is_empty() {
        list.push(",subtype=");
        list.push(escape(OsStr::new(&options.subtype)));
    }
    list.push(",fsname=");
    list.push(escape(source));
    for (wanted, word) in [
        (!options.suid, ",nosuid"),
        (!options.dev, ",nodev"),
        (!options.exec, ",noexec"),
        (options.kernel_checks(), ",default_permissions"),
        (options.allow_other, ",allow_other"),
    ] {
        if wanted {
            list.push(word);
        }
    }
    list
}

/// A comma would end the option.
fn escape(text: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsStr::from_bytes(&out).to_os_string()
}

/// fusermount3, or the fusermount of older systems.
pub fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let dirs: Vec<_> = std::env::split_paths(&path).chain(usual).collect();
    ["fusermount3", "fusermount"]
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
        .find(|program| program.is_absolute() && program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_is_told() {
        let options = MountOptions::parse("allow_other,noexec").unwrap();
        let list = helper_options(OsStr::new("/a,b\\c"), &options, false);
        assert_eq!(
            list,
            "ro,subtype=forerun,fsname=/a\\,b\\\\c,nosuid,nodev,noexec,default_permissions,allow_other"
        );
        let plain = MountOptions::parse("subtype=").unwrap();
        let list = helper_options(OsStr::new("a"), &plain, true);
        assert_eq!(list, "rw,fsname=a,nosuid,nodev");
    }

    #[test]
    fn nosuid_and_nodev_unless_asked() {
        let all = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(flags(&MountOptions::default(), false), all);
        let asked = MountOptions::parse("suid,dev").unwrap();
        assert_eq!(flags(&asked, false), MountFlags::RDONLY);
        assert_eq!(flags(&asked, true), MountFlags::empty());
    }
}
