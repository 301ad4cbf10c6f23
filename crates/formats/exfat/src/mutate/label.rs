use forerun_vfs::Result;
use zerocopy::{FromZeros, IntoBytes};

use crate::dir::{Found, Slots};
use crate::name;
use crate::nodes::ROOT;
use crate::ondisk::{LabelEntry, MAX_LABEL, kind};
use crate::session::Session;
use crate::store::group;

impl Session<'_> {
    /// Returns the slot and the text of the label; `None` if the root has no label entry.
    pub fn label(&mut self) -> Result<Option<(u32, Vec<u16>)>> {
        let chain = self.chain(ROOT)?;
        let mut slots = Slots::new(self.volume, &chain, None);
        let mut slot = 0;
        while let Some((found, next)) = slots.next_item(slot)? {
            if let Found::Other { entry } = found
                && entry[0] == kind::LABEL
            {
                let entry: LabelEntry = zerocopy::transmute!(entry);
                let count = usize::from(entry.character_count).min(MAX_LABEL);
                let units = entry.volume_label.iter().map(|unit| unit.get());
                return Ok(Some((slot, units.take(count).collect())));
            }
            slot = next;
        }
        Ok(None)
    }

    /// Implements [`FileSystemMut::set_label`](forerun_vfs::FileSystemMut::set_label).
    pub fn set_label(&mut self, label: &[u8]) -> Result<()> {
        let units = name::for_label(label)?;
        let mut entry = LabelEntry::new_zeroed();
        entry.entry_type = kind::LABEL;
        entry.character_count = u8::try_from(units.len()).unwrap_or(0);
        for (to, &unit) in entry.volume_label.iter_mut().zip(&units) {
            to.set(unit);
        }
        let slot = match self.label()? {
            Some((slot, _)) => slot,
            None if units.is_empty() => return Ok(()),
            None => {
                self.changeable(ROOT)?;
                let slot = self.find_room(ROOT, 1, None)?;
                self.index(ROOT)?.take(slot, 1);
                slot
            }
        };
        self.write_slots(ROOT, slot, entry.as_bytes(), group::ENTRIES, group::ENTRIES)
    }
}
