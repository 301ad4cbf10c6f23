//! A file that is written whole or not at all.
//!
//! Data goes to a hidden file in the same directory, which gets the final name once everything is
//! written and on disk. A failure, Ctrl-C or a power cut leaves the old file, or none.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use forerun::build::ImageOutput;
use forerun::unstable::disk::payload::NewSif;
use forerun_io::OutputFile;
use forerun_sandbox::Sandbox;
use tempfile::TempPath;

use crate::args::is_stdin;
use crate::confine::{NAMES, directory_of};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;
use crate::output;
use crate::shifted::Shifted;

pub struct Target {
    pub name: String,
    file: File,
    kind: Kind,
    /// The offset at which `front` begins.
    offset: u64,
    /// Bytes before the output.
    front: Vec<u8>,
    /// The SIF file that it is to be: the bytes before the product have its length.
    sif: Option<NewSif>,
}

enum Kind {
    /// Standard output or a device, which is written directly.
    Direct,
    File {
        path: PathBuf,
        replace: bool,
        temp: TempPath,
        _guard: Option<OnInterrupt>,
    },
}

impl Target {
    /// Opens `path`, or standard output for `-`, which must not be a terminal. `what` names the
    /// output. An existing file is replaced, and a block device written, only with `force`.
    pub fn create(path: &Path, force: bool, what: &str) -> Result<Self> {
        if is_stdin(path) {
            output::refuse_terminal(what, "name a file, or redirect: ... > FILE")?;
            return Ok(Self {
                name: output::STDOUT.to_string(),
                file: output::stdout_file()?,
                kind: Kind::Direct,
                offset: 0,
                front: Vec::new(),
                sif: None,
            });
        }
        let name = path.display().to_string();
        let target = Self::open(path, force);
        let (file, kind) = target.map_err(|failure| failure.of(&name))?;
        Ok(Self {
            name,
            file,
            kind,
            offset: 0,
            front: Vec::new(),
            sif: None,
        })
    }

    /// Leaves a hole of this length before the output.
    pub fn begin_at(&mut self, offset: u64) -> Result<()> {
        if offset == 0 {
            return Ok(());
        }
        self.offset = offset;
        let begun = self.file.seek(SeekFrom::Start(offset));
        begun.map(drop).map_err(|error| self.failed(&error))
    }

    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Writes bytes before the output, which starts after them. Readers of the file may execute it.
    pub fn begin_program(&mut self, front: Vec<u8>) -> Result<()> {
        self.front = front;
        let begun = self.file.write_all(&self.front).and_then(|()| {
            let mode = self.file.metadata()?.mode();
            let mode = Permissions::from_mode(mode | (mode & 0o444) >> 2);
            self.file.set_permissions(mode)
        });
        begun.map_err(|error| self.failed(&error))
    }

    /// Begins a SIF file, as [`begin_program`](Self::begin_program) does where what is written can
    /// be written over.
    pub fn begin_sif(&mut self, sif: NewSif) -> Result<()> {
        let begun = if self.rewrites() {
            self.begin_program(sif.front(0))
        } else {
            Ok(())
        };
        self.sif = Some(sif);
        begun
    }

    /// Returns whether it is to be a SIF file.
    pub const fn is_sif(&self) -> bool {
        self.sif.is_some()
    }

    /// Writes what comes before a product of this length, where that depends on it.
    pub fn finish(&mut self, len: u64) -> Result<()> {
        let Some(sif) = &self.sif else {
            return Ok(());
        };
        let front = sif.front(len);
        let written = if self.front.is_empty() {
            self.file.write_all(&front)
        } else {
            self.file.patch(0, &front)
        };
        written.map_err(|error| self.failed(&error))
    }

    /// Returns the writer of an image, which starts after the bytes before it.
    pub fn image(&mut self) -> Shifted<'_> {
        let front = crate::size::count_of(self.front.len());
        Shifted::new(&mut self.file, self.offset + front)
    }

    /// Adds the access that renaming the file needs.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        match &self.kind {
            Kind::Direct => sandbox,
            Kind::File { path, .. } => sandbox.name_files_in(directory_of(path)).keep(NAMES),
        }
    }

    /// Returns whether written bytes can be overwritten. Standard output may be a pipe or appended
    /// to, so it cannot.
    pub fn rewrites(&self) -> bool {
        let is_block_device = |metadata: &Metadata| metadata.file_type().is_block_device();
        match &self.kind {
            Kind::File { .. } => true,
            Kind::Direct => {
                self.name != output::STDOUT
                    && self.file.metadata().as_ref().is_ok_and(is_block_device)
            }
        }
    }

    /// Discards everything written. Returns false if another program may already have read it.
    pub fn begin_anew(&mut self) -> bool {
        match &self.kind {
            Kind::File { .. } => {
                self.file.set_len(0).is_ok()
                    && self.file.seek(SeekFrom::Start(self.offset)).is_ok()
                    && self.file.write_all(&self.front).is_ok()
            }
            Kind::Direct => false,
        }
    }

    pub fn failed(&self, error: &io::Error) -> Failure {
        Failure::output(error).of(&self.name)
    }

    /// Gives the file its name, after everything was written.
    pub fn commit(mut self) -> Result<()> {
        let failed = |error: &io::Error| Failure::output(error).of(&self.name);
        self.file.flush().map_err(|error| failed(&error))?;
        let Kind::File {
            path,
            replace,
            temp,
            _guard,
        } = self.kind
        else {
            return Ok(());
        };
        self.file.sync_all().map_err(|error| failed(&error))?;
        let named = if replace {
            temp.persist(&path)
        } else {
            temp.persist_noclobber(&path)
        };
        named.map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => exists().of(path.display()),
            _ => failed(&error.error),
        })
    }

    fn open(path: &Path, force: bool) -> Result<(File, Kind)> {
        let failed = |error: io::Error| Failure::output(&error);
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let failure = Failure::new(Exit::Output, "output", "is a directory");
                Err(failure.hint("name the file to write"))
            }
            Ok(metadata) if metadata.is_file() => {
                if !force {
                    return Err(exists());
                }
                // For a link, replaces its target, as a plain write would.
                let path = path.canonicalize().map_err(failed)?;
                Self::beside(&path, true, Some(metadata.mode()))
            }
            Ok(metadata) => {
                if metadata.file_type().is_block_device() && !force {
                    let message = "is a block device, and its contents would be lost";
                    let failure = Failure::new(Exit::Output, "exists", message);
                    return Err(failure.hint("--force overwrites it"));
                }
                let file = File::options().write(true).open(path).map_err(failed)?;
                Ok((file, Kind::Direct))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::beside(path, force, None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn beside(path: &Path, replace: bool, mode: Option<u32>) -> Result<(File, Kind)> {
        let failed = |error: io::Error| Failure::output(&error);
        let dir = directory_of(path);
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(path.file_name().unwrap_or_default());
        prefix.push(".");
        let mut guard = None;
        let temp = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            // Opened here, so that the user's umask applies as to any new file, and so that there
            // is no moment in which an interrupt would leave it behind.
            .make_in(dir, |path| {
                let partial = path.to_path_buf();
                let remove = OnInterrupt::new(move || {
                    let _ = std::fs::remove_file(partial);
                });
                let file = File::options().write(true).create_new(true).open(path)?;
                guard = Some(remove);
                Ok(file)
            })
            .map_err(failed)?;
        let (file, temp) = temp.into_parts();
        if let Some(mode) = mode {
            let mode = Permissions::from_mode(mode & 0o777);
            file.set_permissions(mode).map_err(failed)?;
        }
        let kind = Kind::File {
            path: path.to_path_buf(),
            replace,
            temp,
            _guard: guard,
        };
        Ok((file, kind))
    }
}

/// Opens a file for an output that is written directly. Refuses a file that is not empty.
pub fn open_empty(path: &Path) -> Result<File> {
    let failed = |error: io::Error| Failure::output(&error).of(path.display());
    let file = OutputFile::Append.open(path).map_err(failed)?;
    refuse_filled(path, &file.metadata().map_err(failed)?)?;
    Ok(file)
}

/// Refuses a file that is not empty, for an output that is written at the end.
pub fn refuse_filled_later(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(metadata) => refuse_filled(path, &metadata),
        // Opening it reports other obstacles.
        Err(_) => Ok(()),
    }
}

fn refuse_filled(path: &Path, metadata: &Metadata) -> Result<()> {
    if metadata.is_file() && metadata.len() > 0 {
        let failure = Failure::new(Exit::Output, "exists", "exists already");
        let failure = failure.hint("remove it first, or name another file");
        return Err(failure.of(path.display()));
    }
    Ok(())
}

fn exists() -> Failure {
    Failure::new(Exit::Output, "exists", "exists already").hint("--force replaces it")
}

/// Returns whether two names refer to the same file. Returns false if one does not exist.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}
