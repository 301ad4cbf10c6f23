//! The ratios of rounds in a file, so that a comparison can go on in a later run: eight rounds of all rows take an hour,
//! and leave many of them noisy.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Key;

/// The ratios of forerun to one contender in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    pub image: String,
    pub work: String,
    pub against: String,
    pub bench: f64,
    pub hand: f64,
}

impl Ratios {
    /// Returns the comparison that they belong to.
    pub fn key(&self) -> Key {
        (self.image.clone(), self.work.clone(), self.against.clone())
    }
}

/// A file of ratios, one on a line.
pub struct RoundsFile {
    path: PathBuf,
    file: File,
}

impl RoundsFile {
    /// Opens a file, and returns what it has already. Makes one where there is none.
    pub fn open(path: &Path) -> Result<(Self, Vec<Ratios>)> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path);
        let file = file.with_context(|| path.display().to_string())?;
        let mut known = Vec::new();
        for (line, number) in BufReader::new(&file).lines().zip(1_u64..) {
            let at = || format!("{}, line {number}", path.display());
            let ratios = serde_json::from_str(&line.with_context(at)?);
            known.push(ratios.with_context(at)?);
        }
        let path = path.to_path_buf();
        Ok((Self { path, file }, known))
    }

    /// Adds ratios.
    pub fn add(&mut self, ratios: &Ratios) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(ratios)?);
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| self.path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_has_the_rounds_of_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds");
        let ratios = |bench| Ratios {
            image: "erofs".into(),
            work: "ls".into(),
            against: "kernel".into(),
            bench,
            hand: 0.5,
        };
        let (mut file, known) = RoundsFile::open(&path).unwrap();
        assert_eq!(known, []);
        file.add(&ratios(0.25)).unwrap();
        file.add(&ratios(0.75)).unwrap();
        let (mut file, known) = RoundsFile::open(&path).unwrap();
        assert_eq!(known, [ratios(0.25), ratios(0.75)]);
        file.add(&ratios(1.5)).unwrap();
        assert_eq!(RoundsFile::open(&path).unwrap().1.len(), 3);
        std::fs::write(&path, "{}\n").unwrap();
        let error = RoundsFile::open(&path).err().unwrap();
        assert!(format!("{error:#}").contains("rounds, line 1"), "{error:#}");
    }
}
