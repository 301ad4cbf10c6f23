//! Moves of entry sets from one sector to another.
//!
//! Two sectors cannot be written atomically, and data must never have two owners or none. So the
//! driver first marks the old set unused and stores the new location in a reserved field of its
//! file entry. Then it writes the new set with the old location in the same field. Then it clears
//! both fields. An unused set is still the live copy if no set at the location that it names points
//! back. After a power cut between these steps, other drivers see at worst lost clusters.
//!
//! The driver reads the fields only if `VolumeDirty` was set when the volume was opened.

use forerun_vfs::Result;

use crate::entry_set::{EntrySet, pointer};
use crate::ondisk::{ENTRY, kind};
use crate::place::Place;
use crate::volume::Volume;

/// Offset of the pointer field in a file entry.
pub const POINTER_AT: u64 = 25;
pub const POINTER_LEN: usize = 7;

/// Returns whether an unused entry may start a set whose move was interrupted.
pub fn may_be_stranded(volume: &Volume, entry: &[u8; ENTRY]) -> bool {
    volume.recovers && pointer(entry) != 0 && entry[1] >= 2
}

/// Returns the set with its entries marked in use again and its pointer cleared.
pub fn restored(mut bytes: Vec<u8>) -> Option<EntrySet> {
    for entry in bytes.chunks_exact_mut(ENTRY) {
        if let Some(kind) = entry.first_mut() {
            *kind |= kind::IN_USE;
        }
    }
    bytes.get_mut(25..32)?.fill(0);
    EntrySet::parse(bytes).ok()
}

/// Returns whether the set that `entry` points to points back to `place`.
pub fn has_arrived(volume: &Volume, entry: &[u8; ENTRY], place: Place) -> Result<bool> {
    points_to(volume, Place::of_pointer(pointer(entry)), kind::FILE, place)
}

/// Returns whether an entry of type `kind` at `at` points to `place`.
pub fn points_to(volume: &Volume, at: Place, kind: u8, place: Place) -> Result<bool> {
    if volume.boot.cluster_of(at.offset).is_none() {
        return Ok(false);
    }
    let mut entry = [0; ENTRY];
    volume.read(at.offset, &mut entry)?;
    Ok(entry[0] == kind && pointer(&entry) == place.pointer())
}
