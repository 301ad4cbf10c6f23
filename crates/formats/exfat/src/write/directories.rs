//! Encodes the directories of a new volume, with the locations of files and directories that are
//! not written yet.

use std::borrow::Cow;

use forerun_build::{BuildError, Tree};
use forerun_io::{u64_from, usize_from};
use forerun_vfs::Zone;
use zerocopy::{FromZeros, IntoBytes};

use super::geometry::Geometry;
use super::plan::{Item, Plan};
use super::{ExfatOptions, cannot};
use crate::default_upcase;
use crate::entry_set::{Allocation, EntrySet, checksum};
use crate::name;
use crate::ondisk::{BitmapEntry, GuidEntry, LabelEntry, UpcaseEntry, attribute, kind};
use crate::time::Stamp;
use crate::upcase::{self, Upcase};

/// All write permission bits.
const WRITE_BITS: u16 = 0o222;

/// The locations of all files and directories, and their entry sets.
pub struct Directories {
    /// First cluster of each item of the plan; 0 for empty items.
    pub first: Vec<u32>,
    /// The set of each item; `None` for the root.
    sets: Vec<Option<EntrySet>>,
    root: Vec<u8>,
    /// The serial number: a checksum of all entries unless one was given.
    pub serial: u32,
}

impl Directories {
    pub fn new(
        tree: &Tree,
        options: &ExfatOptions,
        plan: &Plan,
        geometry: &Geometry,
        upcase: &Upcase,
    ) -> Result<Self, BuildError> {
        let mut directories = Self {
            first: place(plan, geometry),
            sets: Vec::with_capacity(plan.items.len()),
            root: root_entries(options, geometry)?,
            serial: 0,
        };
        for (index, item) in plan.items.iter().enumerate() {
            let set = (index > 0).then(|| directories.set(tree, item, index, geometry, upcase));
            directories.sets.push(set);
        }
        directories.serial = options
            .serial
            .unwrap_or_else(|| directories.sum(plan, geometry));
        Ok(directories)
    }

    fn set(
        &self,
        tree: &Tree,
        item: &Item,
        index: usize,
        geometry: &Geometry,
        upcase: &Upcase,
    ) -> EntrySet {
        let node = tree.node(item.node);
        let attributes = match (item.is_directory, node.mode & WRITE_BITS) {
            (true, _) => attribute::DIRECTORY,
            (false, 0) => attribute::ARCHIVE | attribute::READ_ONLY,
            (false, _) => attribute::ARCHIVE,
        };
        let time = Stamp::from_timestamp(node.mtime, &Zone::default());
        let mut set = EntrySet::new(&item.name, attributes, time, upcase);
        let len = if item.is_directory {
            Plan::clusters(item, geometry.cluster) * geometry.cluster
        } else {
            item.len
        };
        let data = Allocation {
            first: self.first[index],
            len,
            contiguous: true,
        };
        set.set_data(data, len);
        set
    }

    pub fn set_valid(&mut self, item: usize, valid: u64) {
        if let Some(Some(set)) = self.sets.get_mut(item) {
            let data = set.data();
            set.set_data(data, valid);
        }
    }

    /// Returns the entries of a directory of the plan, by its number among the directories.
    pub fn entries(&self, plan: &Plan, number: usize) -> Vec<u8> {
        let mut bytes = match number {
            0 => Cow::Borrowed(&self.root),
            _ => Cow::Owned(Vec::new()),
        }
        .into_owned();
        let children = plan.children[number].clone();
        for set in self.sets[children].iter().flatten() {
            bytes.extend_from_slice(set.bytes());
        }
        bytes
    }

    /// Returns a checksum of the volume's length and of all entries.
    fn sum(&self, plan: &Plan, geometry: &Geometry) -> u32 {
        let all = (0..plan.directories.len()).flat_map(|number| self.entries(plan, number));
        let start = geometry.volume.to_le_bytes();
        upcase::checksum(&start.into_iter().chain(all).collect::<Vec<u8>>())
    }
}

/// Returns the first cluster of each item. The order is: bitmap, up-case table, directories, files.
fn place(plan: &Plan, geometry: &Geometry) -> Vec<u32> {
    let mut first = vec![0; plan.items.len()];
    let mut next = geometry.bitmap_clusters + geometry.upcase_clusters;
    let files = plan.items.iter().enumerate();
    let files = files
        .filter(|(_, item)| !item.is_directory)
        .map(|(at, _)| at);
    for index in plan.directories.iter().copied().chain(files) {
        let Some(item) = plan.items.get(index) else {
            continue;
        };
        let clusters = Plan::clusters(item, geometry.cluster);
        if let Some(slot) = first.get_mut(index).filter(|_| clusters > 0) {
            *slot = Geometry::number(next);
        }
        next += clusters;
    }
    first
}

fn root_entries(options: &ExfatOptions, geometry: &Geometry) -> Result<Vec<u8>, BuildError> {
    let units = name::for_label(&options.label);
    let units = units.map_err(|error| cannot(format!("volume label: {error}")))?;
    let mut label = LabelEntry::new_zeroed();
    label.entry_type = kind::LABEL;
    label.character_count = u8::try_from(units.len()).unwrap_or(0);
    for (to, &unit) in label.volume_label.iter_mut().zip(&units) {
        to.set(unit);
    }
    let mut bitmap = BitmapEntry::new_zeroed();
    bitmap.entry_type = kind::BITMAP;
    bitmap.first_cluster = Geometry::number(0).into();
    bitmap.data_length = u64::from(geometry.clusters).div_ceil(8).into();
    let table = default_upcase::compressed();
    let mut upcase = UpcaseEntry::new_zeroed();
    upcase.entry_type = kind::UPCASE;
    upcase.table_checksum = upcase::checksum(&table).into();
    upcase.first_cluster = Geometry::number(geometry.bitmap_clusters).into();
    upcase.data_length = u64_from(table.len()).into();
    let mut entries = [label.as_bytes(), bitmap.as_bytes(), upcase.as_bytes()].concat();
    if let Some(volume_guid) = options.guid {
        let mut guid = GuidEntry::new_zeroed();
        guid.entry_type = kind::GUID;
        guid.volume_guid = volume_guid;
        guid.set_checksum = checksum(guid.as_bytes()).into();
        entries.extend_from_slice(guid.as_bytes());
    }
    debug_assert_eq!(
        entries.len(),
        usize_from(super::plan::root_entries(options)) * crate::ondisk::ENTRY
    );
    Ok(entries)
}
