//! Loop devices: a file, or a part of one, as a block device.
//!
//! A device that [`attach`] sets up detaches itself when its last user is gone, even if the
//! processes are killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;

/// From include/uapi/linux/loop.h.
const LOOP_SET_FD: libc::Ioctl = 0x4c00;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_SET_STATUS64: libc::Ioctl = 0x4c04;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How often to retry because another process took the free device first.
const ATTEMPTS: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

const EMPTY: Info = Info {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// The part of a file that a device shows, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes; 0 for the rest of the file.
    pub size: u64,
    /// Whether the device is writable. The file must then be open for writing.
    pub writable: bool,
    /// Whether reads bypass the page cache of the file, if its filesystem supports that.
    pub direct: bool,
}

/// An open device.
#[derive(Debug)]
pub struct LoopDevice {
    /// The device, which detaches when its last descriptor is closed and its last mount has ended.
    pub device: File,
    /// `/dev/loopN`.
    pub path: PathBuf,
}

/// Sets up a device for a part of a file.
///
/// # Errors
/// The errors of open(2) and ioctl(2): EACCES without root privileges.
pub fn attach(file: BorrowedFd<'_>, part: Part) -> io::Result<LoopDevice> {
    let control = File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    for _ in 0..ATTEMPTS {
        let number = ioctl(control.as_fd(), LOOP_CTL_GET_FREE, 0)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::options()
            .read(true)
            .write(part.writable)
            .open(&path)?;
        match configure(device.as_fd(), file, part) {
            Ok(()) => return Ok(LoopDevice { device, path }),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Returns the device number and the inode of the file behind a loop device.
///
/// # Errors
/// The errors of ioctl(2): ENXIO if the device has no file.
pub fn file_behind(device: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let mut info = EMPTY;
    // SAFETY: the kernel writes one loop_info64 to the address of a value with that layout, which
    // nothing else uses.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    checked(done).map(|_| (info.device, info.inode))
}

fn configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>, part: Part) -> io::Result<()> {
    let mut flags = LO_FLAGS_AUTOCLEAR;
    if !part.writable {
        flags |= LO_FLAGS_READ_ONLY;
    }
    if part.direct {
        flags |= LO_FLAGS_DIRECT_IO;
    }
    let config = Config {
        fd: file.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info: Info {
            offset: part.offset,
            size_limit: part.size,
            flags,
            ..EMPTY
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads one loop_config from the address of a value with that layout, and
    // keeps no pointer.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    match checked(done) {
        Err(error) if is_unknown(&error) => configure_in_steps(device, file, &config.info),
        configured => configured.map(drop),
    }
}

/// Sets up a device on kernels before Linux 5.8. Whether it is read-only follows from how the
/// device and the file were opened.
fn configure_in_steps(device: BorrowedFd<'_>, file: BorrowedFd<'_>, info: &Info) -> io::Result<()> {
    ioctl(device, LOOP_SET_FD, file.as_raw_fd().into())?;
    // SAFETY: the kernel reads one loop_info64 from the address of a value with that layout, and
    // keeps no pointer.
    let done = unsafe {
        let info: *const Info = info;
        libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64, info)
    };
    checked(done).map(drop).inspect_err(|_| {
        // Without this the device would stay attached.
        let _nothing_more_can_be_done = ioctl(device, LOOP_CLR_FD, 0);
    })
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOTTY | libc::ENOSYS)
    )
}

/// Calls ioctl(2) with a number as its argument.
fn ioctl(fd: BorrowedFd<'_>, request: libc::Ioctl, number: libc::c_long) -> io::Result<i32> {
    // SAFETY: the requests of this file that take a number take no address, so the kernel accesses
    // no memory of this process.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), request, number) })
}

fn checked(done: libc::c_int) -> io::Result<i32> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Returns whether this machine has loop devices that this user may set up.
    fn can_attach() -> bool {
        File::options()
            .write(true)
            .open("/dev/loop-control")
            .is_ok()
    }

    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..8_u8).flat_map(|n| [n; 512]).collect();
        file.write_all(&bytes).unwrap();
        file
    }

    fn is_attached(path: &std::path::Path) -> bool {
        let name = path.file_name().unwrap().to_str().unwrap();
        std::path::Path::new(&format!("/sys/block/{name}/loop/backing_file")).exists()
    }

    fn shows_and_detaches(configure: fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>) {
        let control = File::options()
            .write(true)
            .open("/dev/loop-control")
            .unwrap();
        let file = file();
        let (device, path) = loop {
            let number = ioctl(control.as_fd(), LOOP_CTL_GET_FREE, 0).unwrap();
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = File::open(&path).unwrap();
            match configure(device.as_fd(), file.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                configured => break configured.map(|()| (device, path)).unwrap(),
            }
        };
        let mut bytes = Vec::new();
        (&device).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [[1; 512], [2; 512]].concat());
        let metadata = file.metadata().unwrap();
        let behind = file_behind(device.as_fd()).unwrap();
        assert_eq!(behind, (metadata.dev(), metadata.ino()));
        assert!(
            File::options()
                .write(true)
                .open(&path)
                .and_then(|mut f| f.write_all(&[0; 512]))
                .is_err()
        );
        drop(device);
        // The kernel detaches the file in the background.
        while is_attached(&path) && file_of(&path) == Some(metadata.ino()) {
            std::thread::yield_now();
        }
    }

    fn file_of(path: &std::path::Path) -> Option<u64> {
        let device = File::open(path).ok()?;
        file_behind(device.as_fd()).ok().map(|(_, inode)| inode)
    }

    const PART: Part = Part {
        offset: 512,
        size: 1024,
        writable: false,
        direct: false,
    };

    #[test]
    fn a_part_of_a_file_is_shown_until_the_device_is_closed() {
        if can_attach() {
            shows_and_detaches(|device, file| configure(device, file, PART));
        }
    }

    #[test]
    fn a_part_of_a_file_is_shown_by_old_kernels_too() {
        if can_attach() {
            shows_and_detaches(|device, file| {
                let info = Info {
                    offset: PART.offset,
                    size_limit: PART.size,
                    flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_READ_ONLY,
                    ..EMPTY
                };
                configure_in_steps(device, file, &info)
            });
        }
    }

    #[test]
    fn what_is_no_device_is_an_error() {
        let file = file();
        assert!(file_behind(file.as_fd()).is_err());
        if can_attach() {
            let null = File::open("/dev/null").unwrap();
            assert!(attach(null.as_fd(), PART).is_err());
        }
    }
}
