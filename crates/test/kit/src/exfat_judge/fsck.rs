//! `fsck.exfat` on many states of one volume.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use forerun_io::u64_from;

use crate::powercut::{SECTOR, Snapshot};
use crate::{TempDir, require, temp_dir};

#[derive(Clone, Debug)]
pub struct Said {
    /// Whether it calls the volume clean.
    pub clean: bool,
    /// The lines with its complaints. It may complain and still call the volume clean.
    pub errors: Vec<String>,
}

/// A file in which only the sectors that differ from state to state are rewritten.
#[derive(Debug)]
pub struct Fsck {
    program: PathBuf,
    path: PathBuf,
    file: File,
    base: Option<Arc<[u8]>>,
    changed: Vec<u64>,
    _dir: TempDir,
}

impl Fsck {
    /// Creates the file. Returns `None` without `fsck.exfat`.
    pub fn new() -> Option<Self> {
        let program = require::program("fsck.exfat")?;
        let dir = temp_dir("fsck");
        let path = dir.path().join("volume");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        Some(Self {
            program,
            path,
            file: file.expect("a file for fsck.exfat"),
            base: None,
            changed: Vec::new(),
            _dir: dir,
        })
    }

    /// Runs `fsck.exfat -n`, which must find nothing wrong.
    pub fn check(&mut self, state: &Snapshot) -> Result<(), String> {
        let said = self.said(state);
        if said.clean && said.errors.is_empty() {
            Ok(())
        } else {
            Err(format!("fsck.exfat: {}", said.errors.join("; ")))
        }
    }

    pub fn said(&mut self, state: &Snapshot) -> Said {
        self.put(state).expect("the state is written");
        let output = Command::new(&self.program)
            .arg("-n")
            .arg(&self.path)
            .output();
        let output = output.expect("fsck.exfat starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let clean = output.status.success() && text.contains(": clean.");
        let errors = text.lines().filter(|line| line.contains("ERROR"));
        let mut errors: Vec<String> = errors.map(str::to_owned).collect();
        if !clean && errors.is_empty() {
            errors.push(text);
        }
        Said { clean, errors }
    }

    fn put(&mut self, state: &Snapshot) -> std::io::Result<()> {
        let base = state.base();
        match &self.base {
            Some(old) if Arc::ptr_eq(old, base) => {
                for &index in &self.changed {
                    let start = forerun_io::usize_from(index) * SECTOR;
                    self.file
                        .write_all_at(&base[start..start + SECTOR], u64_from(start))?;
                }
            }
            _ => {
                self.file.set_len(state.len())?;
                self.file.write_all_at(base, 0)?;
                self.base = Some(Arc::clone(base));
            }
        }
        self.changed.clear();
        for (index, bytes) in state.changed() {
            self.file.write_all_at(bytes, index * u64_from(SECTOR))?;
            self.changed.push(index);
        }
        Ok(())
    }
}
