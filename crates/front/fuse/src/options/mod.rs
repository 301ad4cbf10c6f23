//! Mount options, as in `-o` and `/etc/fstab`.
//!
//! Some options apply to opening the image ([`MountOptions::open_options`]), the others to
//! [`mount`](crate::mount()). Words that mount(8) and systemd use in fstab are accepted and
//! ignored. Every other unknown word is an error, because a silently ignored typo such as
//! `nolargeblock` would be worse.

mod parse;
mod value;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use forerun::OpenOptions;
use forerun::unstable::WriteOptions;
use forerun::unstable::locks::Locking;
use forerun_vfs::{Ownership, Verity, Zone};

use crate::{MountNamespace, Outside, StateFile};

pub use parse::{OptionError, option_words};
pub use value::parse_size;

/// Mount options. [`MountOptions::default`] is a read-only, nosuid, nodev mount with all read
/// optimizations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// `offset=`: start of the image in its file, in bytes.
    pub offset: u64,
    /// `size=`: length of the image in its file, in bytes.
    pub size: Option<u64>,
    /// `device=`: files and devices with data outside the image, in the order of its device table.
    /// Each occurrence adds one.
    pub devices: Vec<PathBuf>,
    /// `objects=`: the object store of a composefs image.
    pub objects: Option<PathBuf>,
    /// `basedir=`: the directories below which a composefs image names files by any path. Each word adds one.
    pub base_dirs: Vec<PathBuf>,
    /// `verity=`: how to use the digests of objects: `off`, `on` or `require`.
    pub verity: Verity,
    /// `digest=`: the required fs-verity digest of a composefs image.
    pub digest: Option<String>,
    /// `uid=`: owner of all files, replacing the image's.
    pub uid: Option<u32>,
    /// `gid=`: group of all files, replacing the image's.
    pub gid: Option<u32>,
    /// `unmapped=`: whether owners that the mount's user namespace does not map are shown as the
    /// mounting user (`squash`) or left to the kernel (`keep`).
    pub squash_owners: bool,
    /// `umask=`: permission bits to remove from all files.
    pub umask: Option<u16>,
    /// `fmask=`: the same for all nodes except directories, instead of `umask`.
    pub file_mask: Option<u16>,
    /// `dmask=`: the same for directories, instead of `umask`.
    pub directory_mask: Option<u16>,
    /// `time_offset=`, `tz=` and `sys_tz`: the zone of times stored without one.
    pub zone: Zone,
    /// `allow_other`: other users can access the mount. Implies `default_permissions`, so that they
    /// can access no more than in a kernel mount.
    pub allow_other: bool,
    /// Use `allow_other` without the permission checks of `default_permissions`, as libfuse
    /// programs do: other users can then read everything. No mount option sets this field.
    pub permissive: bool,
    /// `default_permissions`: the kernel enforces the image's owners and modes for the mounting
    /// user too.
    pub default_permissions: bool,
    /// `auto_unmount`: unmount if the serving process dies for any reason.
    pub auto_unmount: bool,
    /// `restarts=`: how often per minute a server that dies is replaced. For programs that
    /// supervise mounts; [`mount`](crate::mount()) ignores it.
    pub restarts: u32,
    /// `readahead=`: bytes to read ahead of a sequential reader; `None` is the engine's default.
    pub readahead: Option<u64>,
    /// `cache=`: maximum bytes of cached blocks; `None` is the engine's default.
    pub cache: Option<u64>,
    /// `threads=`: number of readahead threads, and of request threads.
    pub threads: Option<usize>,
    /// `largeblocks` or `nolargeblocks`. The latter disables all optimizations, including the
    /// kernel's readahead, so that their effect can be measured.
    pub large_blocks: bool,
    /// `fsname=`: the source shown by `mount` and `df`.
    pub fsname: Option<String>,
    /// `subtype=`: the part after `fuse.` of the mount's type. Empty for plain `fuse`.
    pub subtype: String,
    /// `context=`, `fscontext=`, `defcontext=` and `rootcontext=`: labels of SELinux, if the kernel has that.
    pub labels: Vec<(&'static str, String)>,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
    /// Whether `rw` was given. Mounts of most formats are read-only regardless; the caller may tell
    /// the user.
    pub rw_asked: bool,
    /// Whether `ro` was given, so that a writable volume is mounted read-only.
    pub ro_asked: bool,
    /// Show as much as possible of a damaged image; read-only.
    pub rescue: bool,
    /// The process that mounts and unmounts for this one, which is sandboxed by then. Not available
    /// in text form.
    pub outside: Option<Outside>,
    /// The mount namespace to mount in, if this process lives in a copy of it. Not available in
    /// text form.
    pub namespace: Option<MountNamespace>,
    /// The state file for a successor of the server, used for volumes and for images with
    /// [`objects`](Self::objects). `None` if no other process takes over the mount. Not available
    /// in text form.
    pub state: Option<StateFile>,
    /// `remount`: change the flags of the existing mount, see [`remount`](crate::remount()).
    pub remount: bool,
    /// `nolock` and `break_lock`: how to treat other processes' locks on a writable volume.
    pub locking: Locking,
    /// `dirsync`, `sync`, `discard`, `errors=` and driver options such as `keep_last_dots`, for
    /// writable volumes.
    pub write: WriteOptions,
    /// Raise the kernel's readahead if permitted. Not available in text form; used by tests and
    /// benchmarks.
    pub lift_readahead: bool,
    /// Push data into the page cache ahead of sequential readers if the kernel's readahead cannot
    /// be raised. Not available in text form.
    pub push: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            offset: 0,
            size: None,
            devices: Vec::new(),
            objects: None,
            base_dirs: Vec::new(),
            verity: Verity::Off,
            digest: None,
            uid: None,
            gid: None,
            squash_owners: true,
            umask: None,
            file_mask: None,
            directory_mask: None,
            zone: Zone::default(),
            allow_other: false,
            permissive: false,
            default_permissions: false,
            auto_unmount: false,
            restarts: 2,
            readahead: None,
            cache: None,
            threads: None,
            large_blocks: true,
            fsname: None,
            subtype: "forerun".to_string(),
            labels: Vec::new(),
            suid: false,
            dev: false,
            exec: true,
            rw_asked: false,
            ro_asked: false,
            rescue: false,
            outside: None,
            namespace: None,
            state: None,
            remount: false,
            locking: Locking::Respect,
            write: WriteOptions::default(),
            lift_readahead: true,
            push: true,
        }
    }
}

impl MountOptions {
    /// Returns the labels that the kernel takes: none without SELinux. mount(8) omits them there, too.
    #[must_use]
    pub fn kernel_labels(&self) -> &[(&'static str, String)] {
        if Path::new("/sys/fs/selinux/enforce").exists() {
            &self.labels
        } else {
            &[]
        }
    }

    /// Applies a comma-separated list on top of the current options; later words win. `\,` and `\\`
    /// in a value stand for a comma and a backslash.
    ///
    /// # Errors
    /// [`OptionError`], which names the word and the valid values.
    pub fn apply(&mut self, list: &str) -> Result<(), OptionError> {
        parse::apply(self, list, None)
    }

    /// Does the same as [`apply`](Self::apply), but returns unknown words instead of failing
    /// (mount(8)'s `-s`).
    ///
    /// # Errors
    /// A known option has an invalid value.
    pub fn apply_known(&mut self, list: &str) -> Result<Vec<String>, OptionError> {
        let mut unknown = Vec::new();
        parse::apply(self, list, Some(&mut unknown))?;
        Ok(unknown)
    }

    /// Parses a list on top of the defaults.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.apply(list)?;
        Ok(options)
    }

    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        let mut open = OpenOptions {
            offset: self.offset,
            size: self.size,
            devices: self.devices.clone(),
            objects: self.objects.clone(),
            base_dirs: self.base_dirs.clone(),
            verity: self.verity,
            digest: self.digest.clone(),
            ownership: self.ownership(),
            rescue: self.rescue,
            locking: self.locking,
            ..OpenOptions::default()
        };
        open.engine.large_blocks = self.large_blocks;
        if let Some(readahead) = self.readahead {
            open.engine.readahead = readahead;
        }
        if let Some(cache) = self.cache {
            open.engine.cache = cache;
        }
        if let Some(threads) = self.threads {
            open.engine.threads = threads;
        }
        open
    }

    /// Returns the object store and the base directories of a composefs image.
    pub fn stores(&self) -> impl Iterator<Item = &PathBuf> {
        self.objects.iter().chain(&self.base_dirs)
    }

    #[must_use]
    pub fn ownership(&self) -> Ownership {
        let default = Ownership::default();
        let mask = |own: Option<u16>, default| own.or(self.umask).unwrap_or(default);
        Ownership {
            uid: self.uid.unwrap_or(default.uid),
            gid: self.gid.unwrap_or(default.gid),
            file_mask: mask(self.file_mask, default.file_mask),
            directory_mask: mask(self.directory_mask, default.directory_mask),
            zone: self.zone.clone(),
        }
    }

    pub(crate) const fn kernel_checks(&self) -> bool {
        self.default_permissions || (self.allow_other && !self.permissive)
    }
}

impl FromStr for MountOptions {
    type Err = OptionError;

    fn from_str(list: &str) -> Result<Self, OptionError> {
        Self::parse(list)
    }
}
