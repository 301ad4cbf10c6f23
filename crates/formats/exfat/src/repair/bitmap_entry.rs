//! Repairs the entry of the allocation bitmap, and finds the clusters that hold the bitmap.

use forerun_vfs::Result;
use zerocopy::IntoBytes;

use super::bits::clusters;
use super::report::{Finding, Kind};
use super::system::{disguised, in_a_row, only, system_chain};
use super::work::Work;
use crate::chain::Chain;
use crate::clusters;
use crate::dir::position;
use crate::entry_set::Allocation;
use crate::error::Check;
use crate::ondisk::{BitmapEntry, ENTRY, kind};
use crate::volume::Volume;

/// The name of the allocation bitmap in findings.
pub const NAME: &str = "allocation bitmap";

/// The entry of the allocation bitmap that the repair goes by.
struct FoundBitmap {
    /// The offset of the entry.
    at: u64,
    fields: BitmapEntry,
    /// Whether length and clusters fit the volume.
    is_sound: bool,
}

impl FoundBitmap {
    /// Returns the error that the length is not `need` bytes.
    fn wrong_length(&self, need: u64) -> Check {
        let found = self.fields.data_length.get();
        Check::SystemLen {
            what: NAME,
            found,
            need,
        }
    }
}

/// Repairs the entry, and returns the clusters of the bitmap. Returns nothing if there are none to go by.
///
/// # Errors
/// `Io`, `Write`, `Limit`.
pub fn settle(work: &mut Work<'_, '_>, root: &Chain) -> Result<Option<Chain>> {
    let need = bitmap_len(&work.volume);
    let Some(mut found) = find_bitmap(work, root)? else {
        return Ok(None);
    };
    let first = found.fields.first_cluster.get();
    let (chain, is_its_own) = bitmap_chain(work, first, need)?;
    found.is_sound &= is_its_own;
    let chain = chain.filter(|chain| !clusters(chain).any(|c| work.claimed.has(c)));
    let Some(chain) = chain else {
        work.leave(Kind::BitmapEntry, None, found.wrong_length(need), found.at);
        return Ok(None);
    };
    if !found.is_sound && !rewrite_bitmap(work, found, &chain, need)? {
        return Ok(None);
    }
    Ok(Some(chain))
}

/// Finds the entry of the bitmap, or one that only its type keeps from being it.
fn find_bitmap(work: &mut Work<'_, '_>, root: &Chain) -> Result<Option<FoundBitmap>> {
    let need = bitmap_len(&work.volume);
    let is_sound = |volume: &Volume, entry: &[u8; ENTRY]| {
        let entry: BitmapEntry = zerocopy::transmute!(*entry);
        let chain = system_chain(volume, entry.first_cluster.get(), need)?;
        let most = volume.boot.clusters_for(need) << volume.boot.cluster_bits;
        Ok((need..=most).contains(&entry.data_length.get()) && chain.is_some())
    };
    if let Some(((slot, entry), is_sound)) = only(work, root, kind::BITMAP, NAME, &is_sound)? {
        return Ok(Some(FoundBitmap {
            at: position(&work.volume, root, slot).unwrap_or(0),
            fields: zerocopy::transmute!(entry),
            is_sound,
        }));
    }
    let missing = Check::Missing { what: NAME };
    let Some((slot, entry)) = disguised(work, root, kind::BITMAP, &is_bitmap)? else {
        work.leave(Kind::BitmapEntry, None, missing, 0);
        return Ok(None);
    };
    let at = position(&work.volume, root, slot).unwrap_or(0);
    let remedy = "take this entry for its";
    if !work.ask(Kind::BitmapEntry, None, (missing, at), remedy) {
        return Ok(None);
    }
    work.edit(at, &entry)?;
    Ok(Some(FoundBitmap {
        at,
        fields: zerocopy::transmute!(entry),
        is_sound: true,
    }))
}

/// Returns the clusters of the bitmap, and whether the FAT has them as its chain.
fn bitmap_chain(work: &mut Work<'_, '_>, first: u32, need: u64) -> Result<(Option<Chain>, bool)> {
    let own = system_chain(&work.volume, first, need)?;
    if own.as_ref().is_some_and(Chain::is_contiguous) {
        return Ok((own, true));
    }
    // A chain in pieces that goes through clusters of other entries is the damage.
    work.look_around()?;
    match own.filter(|own| !clusters(own).any(|c| work.is_led_to(c))) {
        Some(chain) => Ok((Some(chain), true)),
        None => Ok((in_a_row(work, first, need)?, false)),
    }
}

/// Writes the chain of the bitmap and its length, if the user agrees. Returns whether the user did.
fn rewrite_bitmap(
    work: &mut Work<'_, '_>,
    found: FoundBitmap,
    chain: &Chain,
    need: u64,
) -> Result<bool> {
    let at = found.at;
    let followed = clusters::chain(
        &work.volume,
        None,
        at,
        Allocation {
            first: found.fields.first_cluster.get(),
            len: need,
            contiguous: false,
        },
    );
    let error = followed.err();
    let finding = Finding {
        kind: Kind::BitmapEntry,
        path: None,
        error: error.unwrap_or_else(|| found.wrong_length(need).at(None, at)),
        remedy: Some("write its chain and length anew".into()),
    };
    if !work.desk.ask(finding) {
        return Ok(false);
    }
    work.write_chain(chain)?;
    let mut fields = found.fields;
    fields.data_length = need.into();
    work.edit(at, fields.as_bytes())?;
    Ok(true)
}

fn bitmap_len(volume: &Volume) -> u64 {
    u64::from(volume.boot.clusters).div_ceil(8)
}

fn is_bitmap(volume: &Volume, entry: &[u8; ENTRY]) -> Result<bool> {
    let entry: BitmapEntry = zerocopy::transmute!(*entry);
    let need = bitmap_len(volume);
    let is_long = entry.data_length.get() == need && entry.bitmap_flags == 0;
    let is_plain = entry.reserved == [0; 18];
    Ok(is_long && is_plain && system_chain(volume, entry.first_cluster.get(), need)?.is_some())
}
