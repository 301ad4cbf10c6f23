//! Opens a volume: reads the boot sector, then the up-case table and the bitmap that the root
//! directory names.

use std::sync::Arc;

use forerun_io::{Limits, ReadAt, usize_from};
use forerun_vfs::{Error, Ownership, Result};

use crate::boot_region::{boot_to_rescue_by, read_boot};
use crate::chain::Chain;
use crate::clusters;
use crate::default_upcase;
use crate::dir::{Found, Slots};
use crate::entry_set::Allocation;
use crate::error::Check;
use crate::ondisk::{BitmapEntry, ENTRY, GuidEntry, LabelEntry, UpcaseEntry, kind, volume_flag};
use crate::upcase::{self, Upcase};
use crate::volume::Volume;

#[derive(Default)]
struct System {
    bitmap: Option<(u64, BitmapEntry)>,
    upcase: Option<(u64, UpcaseEntry)>,
    guid: Option<[u8; 16]>,
}

impl Volume {
    /// Reads the description of the volume. With `rescue`, damage is skipped and recorded in
    /// `passed_over`: only a boot sector must be sound.
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
        let mut boot = boot;
        boot.fit(source.len());
        if boot.volume_len > source.len() {
            let (len, image) = (boot.volume_len, source.len());
            let error = Check::ShortImage { len, image }.at(None, 0);
            if rescue {
                passed_over.push(error)
            } else {
                return Err(error);
            }
        }
        let mut volume = Self::bare(source, limits, boot);
        volume.ownership = ownership;
        volume.recovers = false;
        volume.from_backup = from_backup;
        volume.rescue = rescue;
        volume.passed_over = passed_over;
        let system = volume.read_root()?;
        volume.recovers = volume.boot.flags & volume_flag::VOLUME_DIRTY != 0;
        volume.guid = system.guid;
        let bitmap = volume.find_bitmap(system.bitmap);
        volume.bitmap = volume.or_rescued(bitmap, Chain::default)?;
        volume.upcase = match volume.read_upcase(system.upcase) {
            // Linux takes the recommended table too.
            Err(error @ Error::Corrupt(_)) => {
                volume.passed_over.push(error);
                default_upcase::table()
            }
            table => volume.or_rescued(table, default_upcase::table)?,
        };
        Ok(volume)
    }

    /// Unwraps a part of the volume's description. Rescue mode records damage and uses `instead`.
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

    fn read_root(&mut self) -> Result<System> {
        let (mut system, mut damage) = (System::default(), Vec::new());
        let (mut odd, mut unknown) = (Vec::new(), None);
        let (chain, stop) = clusters::root_chain_to_damage(self)?;
        damage.extend(stop);
        let mut slots = Slots::new(self, &chain, None);
        let mut slot = 0;
        loop {
            let (found, next) = match slots.next_item(slot) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                // The rest of the directory cannot be read.
                Err(error) => {
                    damage.push(error);
                    break;
                }
            };
            if let Found::Other { entry } | Found::Benign { entry, .. } = found {
                let at = slots.position(slot).unwrap_or(0);
                odd.extend(self.system_entry(&mut system, &entry, at).err());
                let found = entry[0];
                if found & kind::BENIGN == 0
                    && !matches!(found, kind::BITMAP | kind::UPCASE | kind::LABEL)
                {
                    unknown.get_or_insert(found);
                }
            }
            slot = next;
        }
        self.unknown_entry = unknown;
        self.passed_over.extend(odd);
        if damage.is_empty() || self.rescue {
            self.passed_over.extend(damage);
            Ok(system)
        } else {
            Err(damage.swap_remove(0))
        }
    }

    /// Records an entry of the root. Returns what is odd about it: Linux passes over that too.
    fn system_entry(&self, system: &mut System, entry: &[u8; ENTRY], at: u64) -> Result<()> {
        let double = |what: &'static str| Err(Check::Double { what }.at(None, at));
        let active = u8::from(self.boot.is_second_active());
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
                return Err(Check::UnknownEntry { found }.at(None, at));
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
        clusters::chain(self, None, at, data)
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
        let chain = clusters::chain(self, None, at, data)?;
        // At most `MAX_TABLE` bytes.
        let mut table = vec![0; usize_from(len)];
        self.read_chain(&chain, 0, &mut table)?;
        let (found, actual) = (entry.table_checksum.get(), upcase::checksum(&table));
        if found != actual {
            return Err(Check::UpcaseChecksum { found, actual }.at(None, at));
        }
        let start = chain
            .runs()
            .first()
            .map_or(at, |run| self.boot.cluster_at(run.cluster));
        Upcase::parse(&table).map_err(|check| check.at(None, start))
    }
}
