//! Reads the FAT, which stores the next cluster of each cluster.

use forerun_io::usize_from;
use forerun_vfs::Result;

use crate::ondisk::{BAD_CLUSTER, END_OF_CHAIN};
use crate::volume::Volume;

/// Bytes of the FAT that one read fetches.
const WINDOW: u64 = 4096;

/// A reader that fetches the FAT in windows, so that chains of close clusters cost few reads.
pub struct Fat<'a> {
    volume: &'a Volume,
    start: u64,
    window: Vec<u8>,
}

impl<'a> Fat<'a> {
    pub const fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            start: 0,
            window: Vec::new(),
        }
    }

    /// Returns the next cluster of a cluster that the volume has. All words above
    /// [`BAD_CLUSTER`] end a chain, as for Linux.
    ///
    /// # Errors
    /// `Io`.
    pub fn next(&mut self, cluster: u32) -> Result<u32> {
        let word = self.word(cluster)?;
        Ok(if word > BAD_CLUSTER {
            END_OF_CHAIN
        } else {
            word
        })
    }

    /// Returns the word of a cluster that the volume has.
    ///
    /// # Errors
    /// `Io`.
    pub fn word(&mut self, cluster: u32) -> Result<u32> {
        let at = u64::from(cluster) * 4;
        let inside = at.checked_sub(self.start).map(usize_from);
        if let Some(word) = inside.and_then(|at| self.window.get(at..at.checked_add(4)?)) {
            return Ok(word.try_into().map_or(0, u32::from_le_bytes));
        }
        let boot = &self.volume.boot;
        let start = at - at % WINDOW;
        let end = (start + WINDOW).min(boot.fat_len);
        let mut window = vec![0; usize_from(end - start)];
        self.volume.read(boot.active_fat() + start, &mut window)?;
        let inside = usize_from(at - start);
        let word = window[inside..inside + 4].try_into();
        self.start = start;
        self.window = window;
        Ok(word.map_or(0, u32::from_le_bytes))
    }
}
