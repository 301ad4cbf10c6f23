//! Mounts opened images with the kernel's drivers.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use forerun::Image;
use forerun_sys::loop_device::{LoopDevice, Part};
use forerun_sys::mount_table::MountEntry;
use forerun_sys::mountpoint::{Mountpoint, mount_of};
use rustix::io::Errno;

use crate::context::{Context, check_permission};
use crate::drivers::{Driver, for_format};
use crate::error::{Error, Refusal};
use crate::mark::marked;
use crate::named::Named;
use crate::options::{Options, Route};
use crate::{direct, overlay, prefetch, verity};

/// Length of a loop device is a multiple of this.
const SECTOR: u64 = 512;

/// A mount. Dropping this value does not unmount it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Mounted {
    pub fstype: &'static str,
    pub way: Way,
    /// Whether an overlayfs with the object store is on top.
    pub overlay: bool,
    /// Bytes of metadata requested from the kernel in advance.
    pub prefetched: u64,
    /// Failed attempts before the one that succeeded.
    pub refusals: Vec<Refusal>,
    /// The mount's line in mountinfo, by which [`take_down`](crate::take_down()) finds it; `None`
    /// if it has been unmounted already.
    pub entry: Option<MountEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    File,
    Device,
    /// The loop device is detached with the mount.
    Loop(PathBuf),
}

impl Mounted {
    const fn by(driver: &Driver, way: Way, prefetched: u64) -> Self {
        Self {
            fstype: driver.fstype,
            way,
            overlay: false,
            prefetched,
            refusals: Vec::new(),
            entry: None,
        }
    }
}

impl fmt::Display for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fstype)?;
        match &self.way {
            Way::File => f.write_str(" from the file")?,
            Way::Device => f.write_str(" from the device")?,
            Way::Loop(device) => write!(f, " through {}", device.display())?,
        }
        if self.overlay {
            f.write_str(", overlayfs with the objects on top")?;
        }
        Ok(())
    }
}

/// Mounts `image`, which was opened from `path`, on `dir`. A failed mount leaves nothing behind.
///
/// # Errors
/// [`Error`]: it is not permitted, the kernel has no driver or refuses the image, or the directory
/// cannot be mounted on.
pub fn mount(image: &Image, path: &Path, dir: &Path, options: &Options) -> Result<Mounted, Error> {
    let format = image.format();
    let driver = for_format(format).ok_or(Error::UnknownFormat { format })?;
    let place = mountpoint(dir)?;
    check_permission(driver.fstype)?;
    let stores = if driver.has_objects {
        open_stores(options)?
    } else if options.upper.is_some() {
        return Err(Error::NoOverlay { format });
    } else {
        Vec::new()
    };
    let source = Source::open(image, path, driver)?;
    let (mount, mut mounted) = source.mount(options)?;
    let mount = if stores.is_empty() {
        mount
    } else {
        mounted.overlay = true;
        let stores: Vec<_> = stores.iter().map(Named::name).collect();
        overlay::over(&mount, &stores, &source.file.marked(), options)?
    };
    mounted.entry = attach(&mount, &place)?;
    Ok(mounted)
}

/// Opens the mountpoint. The mount goes to this directory even if it is renamed or replaced later.
pub fn mountpoint(dir: &Path) -> Result<Mountpoint, Error> {
    let path = dir.to_path_buf();
    Mountpoint::open(dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotADirectory => Error::NotADirectory { path },
        _ => Error::Mountpoint { path, source },
    })
}

/// Attaches a detached mount to a directory. Returns the mount's line in mountinfo.
pub fn attach(mount: &OwnedFd, place: &Mountpoint) -> Result<Option<MountEntry>, Error> {
    let attached = place.attach(mount);
    attached.map_err(|error| Error::Attach {
        path: place.path().to_path_buf(),
        source: error.into(),
    })?;
    Ok(mount_of(mount).ok())
}

/// Opens the directories with the files of an image, of which there is at least one.
fn open_stores(options: &Options) -> Result<Vec<Named>, Error> {
    if options.stores.is_empty() {
        return Err(Error::NoObjects);
    }
    let mut stores = Vec::new();
    for store in &options.stores {
        let store = Named::open(store)?;
        if options.verity != forerun_vfs::Verity::Off {
            verity::check(&store.path)?;
        }
        stores.push(store);
    }
    Ok(stores)
}

struct Source<'i> {
    image: &'i Image,
    driver: &'static Driver,
    file: Named,
    is_device: bool,
    /// Length of the image if other bytes follow it in the file.
    size: Option<u64>,
}

impl<'i> Source<'i> {
    fn open(image: &'i Image, path: &Path, driver: &'static Driver) -> Result<Self, Error> {
        if let Some(container) = image.container().filter(|it| !it.is_contiguous()) {
            let path = path.to_path_buf();
            return Err(Error::Scattered { path, container });
        }
        let file = Named::open(path)?;
        let metadata = file.file.metadata().map_err(|source| Error::File {
            path: path.to_path_buf(),
            source,
        })?;
        let is_device = metadata.file_type().is_block_device();
        let rest = metadata.len().checked_sub(image.offset());
        let is_all = is_device || rest == Some(image.source_len());
        Ok(Self {
            image,
            driver,
            file,
            is_device,
            size: (!is_all).then(|| image.source_len()),
        })
    }

    /// Creates a detached mount by the first method that the kernel accepts.
    fn mount(&self, options: &Options) -> Result<(OwnedFd, Mounted), Error> {
        let begins_here = self.image.offset() == 0;
        let direct = begins_here && (self.is_device || self.driver.from_file.is_some());
        let mut refusals = Vec::new();
        if direct && options.route != Route::Loop {
            match self.directly(options) {
                Err(Error::Refused(more)) if options.route == Route::Any => refusals.extend(more),
                result => return result,
            }
        }
        if options.route == Route::File {
            return Err(Error::NotFromFile {
                path: self.file.path.clone(),
            });
        }
        match self.through_loop(options) {
            Ok((mount, mut mounted)) => {
                mounted.refusals = refusals;
                Ok((mount, mounted))
            }
            Err(Error::Refused(more)) => {
                refusals.extend(more);
                Err(Error::Refused(refusals))
            }
            // The kernel refused the image itself; report that instead of the loop device error.
            Err(error @ (Error::Loop { .. } | Error::Cut { .. }))
                if !refusals.iter().all(is_about_the_file) =>
            {
                tracing::info!("{error}");
                Err(Error::Refused(refusals))
            }
            Err(error) => Err(error),
        }
    }

    fn directly(&self, options: &Options) -> Result<(OwnedFd, Mounted), Error> {
        let (way, what) = if self.is_device {
            (Way::Device, "device")
        } else {
            (Way::File, "file")
        };
        let mut context = self.context(what)?.set("source", &*self.file.marked())?;
        let fs = self.image.reader().fs();
        // Direct I/O would ignore the pages that prefetching the whole image puts into the page
        // cache.
        if way == Way::File && !(options.prefetch && prefetch::is_everything(fs)) {
            context = direct::ask(
                context,
                self.driver,
                &self.file.file,
                fs.volume().block_size,
            );
        }
        let (context, held) = self.set_devices(context, options, &way)?;
        let mount = context.mount(options)?;
        drop(held);
        let prefetched = self.prefetch(&self.file.file, 0, options);
        Ok((mount, Mounted::by(self.driver, way, prefetched)))
    }

    fn through_loop(&self, options: &Options) -> Result<(OwnedFd, Mounted), Error> {
        let shown = self.image.source_len() / SECTOR * SECTOR;
        let len = self.image.reader().fs().volume().image_len;
        let path = &self.file.path;
        if shown < len {
            return Err(Error::Cut {
                path: path.clone(),
                shown,
                image: len,
            });
        }
        let context = self.context("loop device")?;
        let LoopDevice { device, path } = loop_device(&self.file, self.image.offset(), self.size)?;
        let context = context.set("source", &*marked(&path))?;
        let way = Way::Loop(path);
        let (context, held) = self.set_devices(context, options, &way)?;
        let mount = context.mount(options)?;
        let prefetched = if self.driver.bypasses_device_cache {
            self.prefetch(&self.file.file, self.image.offset(), options)
        } else {
            self.prefetch(&device, 0, options)
        };
        drop(held);
        drop(device);
        Ok((mount, Mounted::by(self.driver, way, prefetched)))
    }

    fn context(&self, what: &str) -> Result<Context, Error> {
        let what = format!("{} from the {what}", self.driver.fstype);
        Context::open(self.driver.fstype, what)?.set_flag("ro")
    }

    /// Sets the image's additional devices. Files get a loop device unless the image itself is
    /// mounted from a file.
    fn set_devices(
        &self,
        mut context: Context,
        options: &Options,
        way: &Way,
    ) -> Result<(Context, Vec<Held>), Error> {
        let mut held = Vec::new();
        for path in &options.devices {
            let named = Named::open(path)?;
            let is_file = named.file.metadata().is_ok_and(|of| of.is_file());
            if is_file && *way != Way::File {
                let device = loop_device(&named, 0, None)?;
                context = context.set("device", &*device.path)?;
                held.push(Held::Loop(device));
            } else {
                let name = named.name();
                let name: &OsStr = &name;
                context = context.set("device", name)?;
                held.push(Held::Named(named));
            }
        }
        Ok((context, held))
    }

    fn prefetch(&self, file: &File, base: u64, options: &Options) -> u64 {
        if options.prefetch {
            prefetch::prefetch(file, base, &prefetch::ranges(self.image.reader().fs()))
        } else {
            0
        }
    }
}

/// Sets up a read-only loop device for `size` bytes (by default all) of a file from `offset`. It
/// detaches itself after its last mount and descriptor, also if this process is killed.
fn loop_device(named: &Named, offset: u64, size: Option<u64>) -> Result<LoopDevice, Error> {
    let part = Part {
        offset,
        size: size.unwrap_or(0),
        ..Part::default()
    };
    let attached = forerun_sys::loop_device::attach(named.file.as_fd(), part);
    attached.map_err(|source| Error::Loop {
        path: named.path.clone(),
        source,
    })
}

/// Returns whether the kernel may still mount the image from a block device: it does not support
/// EROFS from files, or not from files on this filesystem.
fn is_about_the_file(refusal: &Refusal) -> bool {
    refusal.error.raw_os_error() == Some(Errno::NOTBLK.raw_os_error())
}

/// A resource that must live until the kernel holds it.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held, not looked at")]
enum Held {
    Loop(LoopDevice),
    Named(Named),
}

#[cfg(test)]
mod tests {
    use forerun_testkit::{require, temp_dir};
    use rustix::mount::UnmountFlags;

    use super::*;

    #[test]
    fn a_mountpoint_swapped_for_a_link_after_the_check_gets_the_mount_all_the_same() {
        if !require::root() {
            return;
        }
        let temp = temp_dir("kernel-swapped");
        let at = |name: &str| temp.path().canonicalize().unwrap().join(name);
        for name in ["mnt", "elsewhere"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let checked = mountpoint(&at("mnt")).unwrap();
        std::fs::rename(at("mnt"), at("checked")).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("mnt")).unwrap();
        let context = Context::open("tmpfs", "tmpfs".to_string()).unwrap();
        let mount = context.mount(&Options::default()).unwrap();
        let entry = attach(&mount, &checked).unwrap().unwrap();
        drop(mount);
        rustix::mount::unmount(&entry.mount_point, UnmountFlags::DETACH).unwrap();
        assert_eq!(entry.mount_point, at("checked"));
    }
}
