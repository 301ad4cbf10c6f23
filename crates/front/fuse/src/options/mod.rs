//! Options of a mount, as in `-o` and `/etc/fstab`.
//!
//! One flat value: some of it is for opening the image ([`MountOptions::open_options`]), the rest
//! for [`mount`](crate::mount()). Words that mount(8) and systemd put into an fstab line for
//! themselves are accepted and mean nothing here; every other unknown word is an error, because a
//! misspelt `nolargeblocks` that is silently ignored is worse than none.

mod parse;
mod value;

use std::path::PathBuf;
use std::str::FromStr;

use forerun::OpenOptions;
use forerun::unstable::WriteOptions;
use forerun::unstable::locks::Locking;
use forerun_vfs::{Ownership, Verity};

use crate::{MountNamespace, Outside, StateFile};

pub use parse::{OptionError, option_words};
pub use value::parse_size;

/// How to mount. [`MountOptions::default`] is a read-only, nosuid, nodev mount with everything that
/// makes reading fast turned on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// `offset=`: where the image starts in its file, in bytes.
    pub offset: u64,
    /// `size=`: length of the image in its file, in bytes.
    pub size: Option<u64>,
    /// `device=`: files and devices with the data that the image keeps outside itself, in the order
    /// of its device table. Each word adds one.
    pub devices: Vec<PathBuf>,
    /// `objects=`: the object store of a composefs image.
    pub objects: Option<PathBuf>,
    /// `verity=`: what is done with the digests of objects: `off`, `on` or `require`.
    pub verity: Verity,
    /// `digest=`: the fs-verity digest that a composefs image must have.
    pub digest: Option<String>,
    /// `uid=`: owner of everything, instead of the image's.
    pub uid: Option<u32>,
    /// `gid=`: group of everything, instead of the image's.
    pub gid: Option<u32>,
    /// `unmapped=`: whether owners that the user namespace of the mount does not map are shown as the
    /// mounting user (`squash`), or are left to the kernel (`keep`).
    pub squash_owners: bool,
    /// `umask=`: permission bits to take away from everything.
    pub umask: Option<u16>,
    /// `fmask=`: the same for what is no directory, instead of `umask`.
    pub file_mask: Option<u16>,
    /// `dmask=`: the same for directories, instead of `umask`.
    pub directory_mask: Option<u16>,
    /// `time_offset=`, `tz=UTC` and `sys_tz`: minutes east of UTC in which times are kept that have
    /// no zone of their own.
    pub utc_offset: i16,
    /// `allow_other`: other users see the mount too. Implies the permission checks of
    /// `default_permissions`, so that they see no more than a kernel mount would show them.
    pub allow_other: bool,
    /// Whether `allow_other` goes without the permission checks of `default_permissions`, as in programs that
    /// use libfuse. Not an option in text form: users other than the mounting one can read all then.
    pub permissive: bool,
    /// `default_permissions`: the kernel enforces the image's owners and modes for the mounting
    /// user too.
    pub default_permissions: bool,
    /// `auto_unmount`: the mount goes when the process that serves it dies, however it dies.
    pub auto_unmount: bool,
    /// `restarts=`: how many times in a minute a process that dies is replaced by another one that
    /// serves the mount. For programs that keep mounts; [`mount`](crate::mount()) does not use it.
    pub restarts: u32,
    /// `readahead=`: bytes kept ahead of a sequential reader; the engine's default if not given.
    pub readahead: Option<u64>,
    /// `cache=`: bytes that cached blocks may hold; the engine's default if not given.
    pub cache: Option<u64>,
    /// `threads=`: threads that read ahead, and threads that answer requests.
    pub threads: Option<usize>,
    /// `largeblocks` or `nolargeblocks`. The latter is the legacy way in all respects: no readahead
    /// in the kernel either, so that its cost can be measured.
    pub large_blocks: bool,
    /// `fsname=`: what `mount` and `df` show as the source; the caller's word for the image.
    pub fsname: Option<String>,
    /// `subtype=`: what follows `fuse.` in the type of the mount. Empty for a mount of the plain type
    /// `fuse`.
    pub subtype: String,
    /// `suid`: honour set-user-id bits of the image. Root only.
    pub suid: bool,
    /// `dev`: honour device nodes of the image. Root only.
    pub dev: bool,
    /// `exec` or `noexec`.
    pub exec: bool,
    /// Whether `rw` was asked for. Of most formats the mount is read-only all the same; the caller
    /// may say so.
    pub rw_asked: bool,
    /// Whether `ro` was asked for, so that a volume that could be changed is not.
    pub ro_asked: bool,
    /// Show what can be shown of a damaged image; read-only.
    pub rescue: bool,
    /// The process that mounts and unmounts for this one, which is in a sandbox by then. No option of
    /// the command line.
    pub outside: Option<Outside>,
    /// The mount namespace to mount in, where this process lives in a copy of it. No option of the command
    /// line.
    pub namespace: Option<MountNamespace>,
    /// Where the server of a volume, or of an image with [`objects`](Self::objects), writes down what its
    /// successor is to know. Nothing where no other process is to take the mount over. Not an option in
    /// text form.
    pub state: Option<StateFile>,
    /// `remount`: change the flags of the mount that is there, see [`remount`](crate::remount()).
    pub remount: bool,
    /// `nolock` and `break_lock`: what is done about the locks of other processes on a volume that
    /// changes.
    pub locking: Locking,
    /// `dirsync`, `sync`, `discard`, `errors=` and the options of single drivers, as `keep_last_dots`: for
    /// volumes that are changed.
    pub write: WriteOptions,
    /// Whether to raise the kernel's readahead where that is permitted. Not an option in text form:
    /// it exists so that tests and benchmarks can compare.
    pub lift_readahead: bool,
    /// Whether to push what a sequential reader will want next into the page cache where the
    /// kernel's readahead cannot be raised. Not an option in text form.
    pub push: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            offset: 0,
            size: None,
            devices: Vec::new(),
            objects: None,
            verity: Verity::Off,
            digest: None,
            uid: None,
            gid: None,
            squash_owners: true,
            umask: None,
            file_mask: None,
            directory_mask: None,
            utc_offset: 0,
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
    /// Applies a comma-separated list on top of what is set already; later words win.
    /// `\,` and `\\` in a value stand for a comma and a backslash.
    ///
    /// # Errors
    /// [`OptionError`], naming the word and what would be valid.
    pub fn apply(&mut self, list: &str) -> Result<(), OptionError> {
        parse::apply(self, list, None)
    }

    /// Applies a list as [`apply`](Self::apply) does, for mount(8)'s `-s`: unknown words are no error,
    /// but are returned.
    ///
    /// # Errors
    /// A known option with a value that cannot be.
    pub fn apply_known(&mut self, list: &str) -> Result<Vec<String>, OptionError> {
        let mut unknown = Vec::new();
        parse::apply(self, list, Some(&mut unknown))?;
        Ok(unknown)
    }

    /// Parses a list on top of the defaults.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.apply(list)?;
        Ok(options)
    }

    /// Returns how to open the image under these options.
    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        let mut open = OpenOptions {
            offset: self.offset,
            size: self.size,
            devices: self.devices.clone(),
            objects: self.objects.clone(),
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

    /// Returns the values for attributes that a format lacks.
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        let default = Ownership::default();
        let mask = |own: Option<u16>, default| own.or(self.umask).unwrap_or(default);
        Ownership {
            uid: self.uid.unwrap_or(default.uid),
            gid: self.gid.unwrap_or(default.gid),
            file_mask: mask(self.file_mask, default.file_mask),
            directory_mask: mask(self.directory_mask, default.directory_mask),
            utc_offset: self.utc_offset,
        }
    }

    /// Returns whether the kernel is to check permissions.
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
