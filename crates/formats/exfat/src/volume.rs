//! An open volume: boot sector, up-case table, the entries of the root directory that describe the
//! volume, and reading of metadata. Nothing in here changes while the volume is open.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, saturating_usize};
use forerun_vfs::{Error, Ownership, Result};

use crate::boot::{self, Boot};
use crate::chain::Chain;
use crate::default_upcase;
use crate::dir::{Found, Slots};
use crate::entry_set::Allocation;
use crate::error::Check;
use crate::fat;
use crate::name;
use crate::ondisk::{
    BitmapEntry, ENTRY, GuidEntry, LabelEntry, MAX_DIRECTORY, UpcaseEntry, kind, volume_flag,
};
use crate::upcase::{self, Upcase};

/// The state that all parts of the driver share.
pub struct Volume {
    pub boot: Boot,
    pub source: Arc<dyn ReadAt>,
    pub limits: Limits,
    pub ownership: Ownership,
    pub upcase: Upcase,
    /// Clusters of the active allocation bitmap.
    pub bitmap: Chain,
    /// `VolumeGuid`, if there is one.
    pub guid: Option<[u8; 16]>,
    /// `VolumeDirty` was set: sets may have been on their way when the power failed.
    pub recovers: bool,
    /// Whether the backup boot region had to be used.
    pub from_backup: bool,
    /// Whether damage is passed over wherever something can still be read.
    pub rescue: bool,
    /// Damage that was passed over when the volume was opened.
    pub passed_over: Vec<Error>,
    hasher: RandomState,
}

/// The entries of the root directory that describe the volume.
#[derive(Default)]
struct System {
    bitmap: Option<(u64, BitmapEntry)>,
    upcase: Option<(u64, UpcaseEntry)>,
    guid: Option<[u8; 16]>,
}

impl Volume {
    /// Reads the description of the volume. With `rescue`, damage is passed over and recorded in
    /// `passed_over`: only a boot sector has to be sound.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported`, `Corrupt` if boot region, root, bitmap or up-case table
    /// fail a check, `Io` if they cannot be read.
    pub fn open(
        source: Arc<dyn ReadAt>,
        limits: Limits,
        ownership: Ownership,
        rescue: bool,
    ) -> Result<Self> {
        let mut passed_over = Vec::new();
        let (boot, from_backup) = match read_boot(&*source) {
            Err(error) if rescue => {
                let boot = boot_to_rescue_by(&*source)?;
                passed_over.push(error);
                boot
            }
            read => read?,
        };
        if boot.volume_len > source.len() {
            let (len, image) = (boot.volume_len, source.len());
            let error = Check::ShortImage { len, image }.at(None, 0);
            match rescue {
                true => passed_over.push(error),
                false => return Err(error),
            }
        }
        let mut volume = Self {
            boot,
            source,
            limits,
            ownership,
            upcase: Upcase::ascii(),
            bitmap: Chain::default(),
            guid: None,
            recovers: false,
            from_backup,
            rescue,
            passed_over,
            hasher: RandomState::new(),
        };
        let system = volume.read_root()?;
        volume.recovers = volume.boot.flags & volume_flag::VOLUME_DIRTY != 0;
        volume.guid = system.guid;
        let bitmap = volume.find_bitmap(system.bitmap);
        volume.bitmap = volume.or_rescued(bitmap, Chain::default)?;
        let upcase = volume.read_upcase(system.upcase);
        volume.upcase = volume.or_rescued(upcase, default_upcase::table)?;
        Ok(volume)
    }

    /// Returns a part of the volume's description, or in a rescue `instead` of a damaged part.
    fn or_rescued<T>(&mut self, part: Result<T>, instead: impl FnOnce() -> T) -> Result<T> {
        match part {
            Err(error @ (Error::Corrupt(_) | Error::Io { .. } | Error::Unsupported(_)))
                if self.rescue =>
            {
                self.passed_over.push(error);
                Ok(instead())
            }
            part => part,
        }
    }

    /// Returns a volume of which only the boot sector is known, for a repair that looks for the rest:
    /// without bitmap, and with an up-case table for ASCII only.
    pub(crate) fn bare(source: Arc<dyn ReadAt>, limits: Limits, boot: Boot) -> Self {
        Self {
            recovers: boot.flags & volume_flag::VOLUME_DIRTY != 0,
            boot,
            source,
            limits,
            ownership: Ownership::default(),
            upcase: Upcase::ascii(),
            bitmap: Chain::default(),
            guid: None,
            from_backup: false,
            rescue: false,
            passed_over: Vec::new(),
            hasher: RandomState::new(),
        }
    }

    /// Reads metadata.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = out.len();
        let read = self.source.read_exact_at(offset, out);
        read.map_err(|error| Error::io(offset, len, error))
    }

    /// Returns a name's key in directory indexes. Names that differ in case only share a key; the hash
    /// has a random seed, so that an image cannot be made to contain many names that collide.
    pub fn name_key(&self, name: &[u16]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        for &unit in name {
            hasher.write_u16(self.upcase.unit(unit));
        }
        let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns the form that all spellings of a name share: in upper case, without dots at the end.
    pub fn fold(&self, name: &[u8]) -> Vec<u8> {
        let Some(units) = name::to_units(name) else {
            return name.to_vec();
        };
        let dots = units.iter().rev().take_while(|&&unit| unit == 0x2E).count();
        match units.get(..units.len() - dots).unwrap_or_default() {
            [] => name.to_vec(),
            kept => name::to_bytes(&self.upcase.name(kept)),
        }
    }

    fn read_root(&mut self) -> Result<System> {
        let (mut system, mut damage) = (System::default(), Vec::new());
        let (chain, stop) = fat::root_chain_to_damage(self)?;
        damage.extend(stop);
        let mut slots = Slots::new(self, &chain, None);
        let mut slot = 0;
        loop {
            let (found, next) = match slots.next_item(slot) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                // The rest cannot be read.
                Err(error) => {
                    damage.push(error);
                    break;
                }
            };
            if let Found::Other { entry } = found {
                let at = slots.position(slot).unwrap_or(0);
                damage.extend(self.system_entry(&mut system, &entry, at).err());
            }
            slot = next;
        }
        match damage.is_empty() || self.rescue {
            true => {
                self.passed_over.extend(damage);
                Ok(system)
            }
            false => Err(damage.swap_remove(0)),
        }
    }

    fn system_entry(&self, system: &mut System, entry: &[u8; ENTRY], at: u64) -> Result<()> {
        let double = |what: &'static str| Err(Check::Double { what }.at(None, at));
        let active = u8::from(self.boot.flags & volume_flag::ACTIVE_FAT != 0);
        match entry[0] {
            kind::BITMAP => {
                let found: BitmapEntry = zerocopy::transmute!(*entry);
                if found.bitmap_flags & 1 != active {
                    return Ok(());
                }
                if system.bitmap.is_some() {
                    return double("allocation bitmap");
                }
                system.bitmap = Some((at, found));
            }
            kind::UPCASE => {
                if system.upcase.is_some() {
                    return double("up-case table");
                }
                let found: UpcaseEntry = zerocopy::transmute!(*entry);
                system.upcase = Some((at, found));
            }
            kind::LABEL => {
                let found: LabelEntry = zerocopy::transmute!(*entry);
                let count = found.character_count;
                if usize::from(count) > found.volume_label.len() {
                    return Err(Check::LabelLen { count }.at(None, at));
                }
            }
            kind::GUID => {
                let found: GuidEntry = zerocopy::transmute!(*entry);
                system.guid = Some(found.volume_guid);
            }
            found if found & kind::BENIGN == 0 => {
                return Err(Error::Unsupported(format!(
                    "critical entry of type {found:#04x} in the root directory"
                )));
            }
            _ => {}
        }
        Ok(())
    }

    fn find_bitmap(&self, entry: Option<(u64, BitmapEntry)>) -> Result<Chain> {
        let what = "allocation bitmap";
        let Some((at, entry)) = entry else {
            return Err(Check::Missing { what }.at(None, 0));
        };
        let (found, need) = (
            entry.data_length.get(),
            u64::from(self.boot.clusters).div_ceil(8),
        );
        if found < need {
            return Err(Check::SystemLen { what, found, need }.at(None, at));
        }
        let data = Allocation {
            first: entry.first_cluster.get(),
            len: need,
            contiguous: false,
        };
        fat::chain(self, None, at, data)
    }

    fn read_upcase(&self, entry: Option<(u64, UpcaseEntry)>) -> Result<Upcase> {
        let what = "up-case table";
        let Some((at, entry)) = entry else {
            return Err(Check::Missing { what }.at(None, 0));
        };
        let len = entry.data_length.get();
        if len == 0 || len > upcase::MAX_TABLE {
            let max = upcase::MAX_TABLE;
            return Err(Check::UpcaseTableLen { found: len, max }.at(None, at));
        }
        let data = Allocation {
            first: entry.first_cluster.get(),
            len,
            contiguous: false,
        };
        let chain = fat::chain(self, None, at, data)?;
        // At most MAX_TABLE.
        let mut table = vec![0; saturating_usize(len)];
        self.read_chain(&chain, 0, &mut table)?;
        let (found, actual) = (entry.table_checksum.get(), upcase::checksum(&table));
        if found != actual {
            return Err(Check::UpcaseChecksum { found, actual }.at(None, at));
        }
        let start = self.boot.cluster_at(chain.first());
        Upcase::parse(&table).map_err(|check| check.at(None, start))
    }

    /// Returns offset and length of the contiguous pieces that hold `len` bytes of a chain from `from`
    /// on.
    pub fn pieces(&self, chain: &Chain, from: u64, len: u64) -> Vec<(u64, u64)> {
        let size = self.boot.cluster_size();
        let mut pieces = Vec::new();
        let (mut at, end) = (from, from.saturating_add(len));
        while at < end {
            let index = u32::try_from(at / size).ok();
            let Some((cluster, count)) = index.and_then(|index| chain.locate(index)) else {
                break;
            };
            let inside = at % size;
            let room = u64::from(count) * size - inside;
            let now = room.min(end - at);
            pieces.push((self.boot.cluster_at(cluster) + inside, now));
            at += now;
        }
        pieces
    }

    /// Reads bytes of a chain.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read_chain(&self, chain: &Chain, from: u64, out: &mut [u8]) -> Result<()> {
        let mut out = out;
        for (offset, len) in self.pieces(chain, from, forerun_io::u64_from(out.len())) {
            let (now, rest) = out
                .split_at_mut_checked(saturating_usize(len))
                .unwrap_or_default();
            self.read(offset, now)?;
            out = rest;
        }
        Ok(())
    }

    /// Returns the number of entries that a directory with these clusters has room for.
    pub fn slots(&self, chain: &Chain) -> u32 {
        let len = u64::from(chain.clusters()) << self.boot.cluster_bits;
        let len = len.min(MAX_DIRECTORY);
        u32::try_from(len / crate::ondisk::ENTRY_LEN).unwrap_or(u32::MAX)
    }
}

/// Reads the main boot region, or the backup if only that is sound.
fn read_boot(source: &dyn ReadAt) -> Result<(Boot, bool)> {
    match boot_region(source, 0) {
        Err(error @ Error::Corrupt(_)) => {
            let backup = backup_region(source);
            backup.map(|boot| (boot, true)).ok_or(error)
        }
        main => main.map(|boot| (boot, false)),
    }
}

/// Reads the boot sector of a volume whose main region cannot be used: that of the backup, or a main
/// one in a region that fails its checksum.
fn boot_to_rescue_by(source: &dyn ReadAt) -> Result<(Boot, bool)> {
    match backup_region(source) {
        Some(boot) => Ok((boot, true)),
        None => boot_sector(source, 0).map(|boot| (boot, false)),
    }
}

/// Reads the backup boot region for sectors of any size, if it is sound.
pub(crate) fn backup_region(source: &dyn ReadAt) -> Option<Boot> {
    (9..=12_u8).find_map(|bits| {
        let found = boot_region(source, boot::REGION_SECTORS << bits).ok()?;
        (found.sector_bits == bits).then_some(found)
    })
}

/// Reads the boot sector at `offset`, whatever the rest of its region.
///
/// # Errors
/// The errors of [`Boot::parse`]; `Io`.
fn boot_sector(source: &dyn ReadAt, offset: u64) -> Result<Boot> {
    let mut sector = [0; 512];
    let (len, need) = (source.len(), offset + 512);
    if len < need {
        return Err(Check::ShortBoot { len, need }.at(None, offset));
    }
    let read = source.read_exact_at(offset, &mut sector);
    read.map_err(|error| Error::io(offset, sector.len(), error))?;
    Boot::parse(&sector, offset)
}

/// Reads the boot sector of the region at `offset`, and checks all of the region.
///
/// # Errors
/// The errors of [`Boot::parse`]; `Io`; `Corrupt` for a wrong checksum.
pub(crate) fn boot_region(source: &dyn ReadAt, offset: u64) -> Result<Boot> {
    let boot = boot_sector(source, offset)?;
    let (len, need) = (source.len(), offset + boot.region_len());
    if len < need {
        return Err(Check::ShortBoot { len, need }.at(None, offset));
    }
    // Twelve sectors of at most 4 KiB.
    let mut region = vec![0; saturating_usize(boot.region_len())];
    let read = source.read_exact_at(offset, &mut region);
    read.map_err(|error| Error::io(offset, region.len(), error))?;
    boot::verify(&region, saturating_usize(boot.sector_size()))
        .map_err(|check| check.at(None, offset))?;
    Ok(boot)
}
