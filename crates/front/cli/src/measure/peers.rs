//! The other drivers and programs that read images, by format.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use forerun_sys::loop_device::Part;
pub use forerun_sys::programs::find_program;

use super::mount::Mount;
use super::process;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The kernel's driver on a loop device. For composefs, EROFS below an overlayfs.
    Kernel,
    SquashfuseLl,
    /// `squashfuse`, the slower of the two.
    Squashfuse,
    Erofsfuse,
    /// `mount.exfat-fuse`, on a loop device.
    ExfatFuse,
    Unsquashfs,
    /// `fsck.erofs --extract`.
    FsckErofs,
}

#[derive(Clone, Debug)]
pub struct Place<'p> {
    pub image: &'p Path,
    pub format: &'p str,
    /// Offset of the image in the file.
    pub offset: u64,
    /// Length of the image in bytes. `None` means that it extends to the end of the file.
    pub size: Option<u64>,
    pub objects: Option<&'p Path>,
    /// Whether to mount it writable, with each change durable when it returns.
    pub writable: bool,
}

impl Peer {
    pub const ALL: [Self; 7] = [
        Self::Kernel,
        Self::SquashfuseLl,
        Self::Squashfuse,
        Self::Erofsfuse,
        Self::ExfatFuse,
        Self::Unsquashfs,
        Self::FsckErofs,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::SquashfuseLl => "squashfuse_ll",
            Self::Squashfuse => "squashfuse",
            Self::Erofsfuse => "erofsfuse",
            Self::ExfatFuse => "exfat-fuse",
            Self::Unsquashfs => "unsquashfs",
            Self::FsckErofs => "fsck.erofs",
        }
    }

    pub fn of_format(format: &str) -> &'static [Self] {
        match format {
            "squashfs" => &[
                Self::Kernel,
                Self::SquashfuseLl,
                Self::Squashfuse,
                Self::Unsquashfs,
            ],
            "erofs" => &[Self::Kernel, Self::Erofsfuse, Self::FsckErofs],
            "exfat" => &[Self::Kernel, Self::ExfatFuse],
            _ => &[Self::Kernel],
        }
    }

    /// Returns whether the peer mounts. The others extract.
    pub const fn mounts(self) -> bool {
        !matches!(self, Self::Unsquashfs | Self::FsckErofs)
    }

    /// Returns the peer's program, or `None` for the kernel.
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Kernel => None,
            Self::ExfatFuse => Some("mount.exfat-fuse"),
            _ => Some(self.name()),
        }
    }

    fn path(self) -> Option<PathBuf> {
        find_program(self.program()?)
    }

    pub fn version(self) -> Option<String> {
        let argument = match self {
            Self::Kernel => return None,
            Self::SquashfuseLl | Self::Squashfuse | Self::Erofsfuse => "--help",
            Self::ExfatFuse | Self::FsckErofs => "-V",
            Self::Unsquashfs => "-version",
        };
        Some(first_line(Command::new(self.path()?).arg(argument)))
    }

    /// Returns why the peer cannot take part, or `None` if it can.
    pub fn missing(self, place: &Place<'_>) -> Option<String> {
        if let Some(program) = self.program()
            && self.path().is_none()
        {
            return Some(format!("{program} is not installed"));
        }
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Self::Kernel if !is_root => Some("the kernel's driver needs root".to_string()),
            Self::Kernel if place.format == "composefs" && place.objects.is_none() => {
                Some("the kernel needs the objects of a composefs image".to_string())
            }
            Self::Kernel => {
                let needed: &[&str] = match place.format {
                    "composefs" => &["erofs", "overlay"],
                    _ => &[place.format],
                };
                let lacks = needed.iter().find(|name| !has_filesystem(name));
                lacks.map(|name| format!("the kernel has no driver for {name}"))
            }
            Self::ExfatFuse if !is_root => Some("exfat-fuse needs root here".to_string()),
            Self::SquashfuseLl | Self::Squashfuse | Self::Erofsfuse | Self::ExfatFuse => {
                lacks_fuse()
            }
            Self::FsckErofs if place.offset > 0 => {
                Some("fsck.erofs cannot read an image inside a larger file".to_string())
            }
            Self::Unsquashfs | Self::FsckErofs => None,
        }
    }

    pub fn mount(self, place: &Place<'_>) -> Result<Mount> {
        let part = Part {
            offset: place.offset,
            size: place.size.unwrap_or(0),
            writable: place.writable,
            direct: false,
        };
        let by = |program, offset: &str| {
            let mut words = vec![OsString::from("-f")];
            if place.offset > 0 {
                words.push(format!("{offset}{}", place.offset).into());
            }
            words.push(place.image.into());
            Mount::daemon(program, &words)
        };
        match self {
            Self::Kernel if place.format == "composefs" => {
                let objects = place.objects.context("no objects")?;
                Mount::kernel_overlay(place.image, part, objects)
            }
            Self::Kernel => Mount::kernel(place.format, place.image, part),
            Self::SquashfuseLl | Self::Squashfuse => by(self.name(), "-ooffset="),
            Self::Erofsfuse => by(self.name(), "--offset="),
            Self::ExfatFuse => Mount::exfat_fuse(place.image, part),
            Self::Unsquashfs | Self::FsckErofs => bail!("{} mounts nothing", self.name()),
        }
    }

    /// Returns the command that extracts an image to the directory `out`, which must not exist.
    /// `None` for peers that only mount.
    pub fn extract(self, place: &Place<'_>, out: &Path) -> Option<Command> {
        let name = self.program()?;
        let mut command = Command::new(self.path().unwrap_or_else(|| name.into()));
        match self {
            Self::Unsquashfs => {
                command.args(["-quiet", "-no-progress"]);
                if place.offset > 0 {
                    command.arg("-offset").arg(place.offset.to_string());
                }
                command.arg("-dest").arg(out).arg(place.image);
            }
            Self::FsckErofs => {
                let mut extract = OsString::from("--extract=");
                extract.push(out);
                command.arg(extract).arg(place.image);
            }
            _ => return None,
        }
        Some(command)
    }
}

/// Returns the first line that a program prints, whatever its exit status: some programs fail when
/// asked for the version.
fn first_line(command: &mut Command) -> String {
    let Ok(output) = process::collect(command.stdin(Stdio::null())) else {
        return "not installed".to_string();
    };
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty()).unwrap_or("no version");
    line.to_string()
}

/// Returns whether the kernel has a driver, built in or as a module.
fn has_filesystem(name: &str) -> bool {
    let known = || {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.split_whitespace().any(|word| word == name)
    };
    let load = || {
        let mut modprobe = Command::new("modprobe");
        modprobe.args(["--quiet", name]).stderr(Stdio::null());
        modprobe.status().is_ok_and(|status| status.success())
    };
    known() || find_program("modprobe").is_some() && load() && known()
}

pub fn lacks_fuse() -> Option<String> {
    let mut device = std::fs::File::options();
    if device.read(true).write(true).open("/dev/fuse").is_err() {
        return Some("/dev/fuse cannot be opened".to_string());
    }
    let can_mount = rustix::process::geteuid().is_root() || find_program("fusermount3").is_some();
    (!can_mount).then(|| "fusermount3 is not installed".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_what_a_program_prints_first() {
        let mut echo = Command::new("sh");
        echo.args(["-c", "echo; echo ' tool 1.2 '; echo more; exit 3"]);
        assert_eq!(first_line(&mut echo), "tool 1.2");
        let mut missing = Command::new("/nowhere/at/all");
        assert_eq!(first_line(&mut missing), "not installed");
    }

    #[test]
    fn names_differ_and_each_peer_reads_something() {
        for peer in Peer::ALL {
            let same = Peer::ALL.iter().filter(|other| other.name() == peer.name());
            assert_eq!(same.count(), 1, "{peer:?}");
            let formats = ["squashfs", "erofs", "exfat", "romfs"];
            let of = |format: &&str| Peer::of_format(format).contains(&peer);
            assert!(formats.iter().any(of), "{peer:?}");
        }
    }

    #[test]
    fn extraction_names_place_and_target() {
        let place = Place {
            image: Path::new("a.img"),
            format: "squashfs",
            offset: 4096,
            size: None,
            objects: None,
            writable: false,
        };
        let words = |peer: Peer| {
            let command = peer.extract(&place, Path::new("out"));
            command.map(|command| {
                let dir = Path::new(command.get_program()).parent();
                let dir = dir.map(|dir| dir.join("").display().to_string());
                let words = process::describe(&command);
                words
                    .trim_start_matches(&dir.unwrap_or_default())
                    .to_string()
            })
        };
        assert_eq!(
            words(Peer::Unsquashfs).as_deref(),
            Some("unsquashfs -quiet -no-progress -offset 4096 -dest out a.img")
        );
        assert_eq!(
            words(Peer::FsckErofs).as_deref(),
            Some("fsck.erofs --extract=out a.img")
        );
        assert_eq!(words(Peer::Squashfuse), None);
        let missing = Peer::FsckErofs.missing(&place).unwrap();
        assert!(missing.contains("fsck.erofs"), "{missing}");
    }
}
