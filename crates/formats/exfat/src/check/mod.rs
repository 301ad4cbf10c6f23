//! Checks that reading does not perform: the entries of a node here, the volume as a whole in
//! [`whole`].

mod whole;

use std::collections::HashSet;

use forerun_io::u64_from;
use forerun_vfs::{Bound, Error, FileType, NodeId, Problem, Result};

use crate::chain::Chain;
use crate::clusters;
use crate::dir::{Found, Slots};
use crate::entry_set::EntrySet;
use crate::error::Check;
use crate::fat::Fat;
use crate::name::is_allowed;
use crate::nodes::ROOT;
use crate::ondisk::{BAD_CLUSTER, END_OF_CHAIN, ENTRY, attribute, flag, kind};
use crate::place::Place;
use crate::session::Session;
use crate::volume::Volume;

pub use whole::volume;

struct Report<'a> {
    node: Option<NodeId>,
    problems: &'a mut Vec<Problem>,
}

impl Report<'_> {
    fn add(&mut self, fatal: bool, error: Error) {
        let node = self.node;
        self.problems.push(Problem { node, fatal, error });
    }

    /// Records damage, and returns errors that end the check.
    fn damage(&mut self, error: Error) -> Result<()> {
        match error {
            error @ Error::Io { .. } => Err(error),
            error => {
                self.add(true, error);
                Ok(())
            }
        }
    }
}

/// Checks one node: its entry set, its data, and the entries of a directory.
pub fn node(session: &mut Session<'_>, id: NodeId, problems: &mut Vec<Problem>) -> Result<()> {
    let mut report = Report {
        node: Some(id),
        problems,
    };
    let mut is_directory = true;
    if id != ROOT {
        let node = match session.load(id) {
            Ok(node) => node,
            // The caller reads the node too, and reports the same error.
            Err(error) => return left_to_the_reader(error),
        };
        is_directory = node.set.file_type() == FileType::Directory;
        set(session.volume, &node.set, node.at(), &mut report);
        let data = node.set.data();
        if let Some(check) = data.unused() {
            report.add(true, check.at(Some(id), node.at()));
        } else if is_directory
            && let Err(error) = clusters::chain(session.volume, Some(id), node.at(), data)
        {
            report.damage(error)?;
        }
        if let Some(place) = node.place
            && is_stranded(session.volume, place)?
        {
            // This is an error because other systems do not see the name.
            report.add(true, Check::Stranded.at(Some(id), node.at()));
        }
        if let Err(error) = session.chain(id) {
            report.damage(error)?;
            return Ok(());
        }
        let chain = session.chain(id)?;
        if !node.set.data().contiguous {
            end_of_chain(session.volume, &chain, node.at(), &mut report)?;
        }
    }
    if is_directory {
        entries(session, id, &mut report)?;
    }
    Ok(())
}

/// Returns whether the set at `place` is marked unused because its move was interrupted.
fn is_stranded(volume: &Volume, place: Place) -> Result<bool> {
    if !volume.recovers {
        return Ok(false);
    }
    let mut kind = [0];
    volume.read(place.offset, &mut kind)?;
    Ok(kind == [kind::UNUSED])
}

fn set(volume: &Volume, set: &EntrySet, at: u64, report: &mut Report<'_>) {
    let (file, stream, name) = (set.file(), set.stream(), set.name());
    let id = report.node;
    let mut add = |fatal: bool, check: Check| report.add(fatal, check.at(id, at));
    if let Some(check) = set.wrong_checksum() {
        add(true, check);
    }
    let (found, actual) = (stream.name_hash.get(), volume.upcase.hash(&name));
    if found != actual {
        add(true, Check::NameHash { found, actual });
    }
    let plain = set.renamed(&name, &volume.upcase);
    if plain.bytes().get(2 * ENTRY..) != set.bytes().get(2 * ENTRY..) {
        let entries = set.bytes().chunks_exact(ENTRY);
        let entries = entries.filter(|entry| entry.first() == Some(&kind::NAME));
        let (len, entries) = (stream.name_length, entries.count());
        add(false, Check::NameForm { len, entries });
    }
    if let Some(&unit) = name.iter().find(|&&unit| !is_allowed(unit)) {
        let name = String::from_utf16_lossy(&name);
        add(true, Check::NameCharacter { name, unit });
    }
    let (valid, len) = (stream.valid_data_length.get(), stream.data_length.get());
    let is_directory = set.has(attribute::DIRECTORY);
    if valid > len || (is_directory && valid != len) {
        add(true, Check::ValidLen { valid, len });
    }
    let cluster = volume.boot.cluster_size();
    if is_directory && len % cluster != 0 {
        add(true, Check::DirectoryUneven { len, cluster });
    }
    let attributes = file.file_attributes.get() & !attribute::KNOWN;
    let reserved = [
        ("FileAttributes", u64::from(attributes)),
        ("Reserved1", file.reserved1.get().into()),
        ("Reserved1 of the stream", stream.reserved1.into()),
        ("Reserved2 of the stream", stream.reserved2.get().into()),
        ("Reserved3 of the stream", stream.reserved3.get().into()),
    ];
    for (field, value) in reserved {
        if value != 0 {
            add(false, Check::Reserved { field, value });
        }
    }
    let found = stream.general_secondary_flags;
    if found & !flag::NO_FAT_CHAIN != flag::ALLOCATION_POSSIBLE {
        add(false, Check::StreamFlags { found });
    }
    for stamp in [set.created(), set.modified(), set.accessed()] {
        if !stamp.is_sound() {
            let (value, hundredths) = (stamp.word, stamp.hundredths);
            add(false, Check::Time { value, hundredths });
        }
    }
}

fn end_of_chain(volume: &Volume, chain: &Chain, at: u64, report: &mut Report<'_>) -> Result<()> {
    let Some(last) = chain.last() else {
        return Ok(());
    };
    let id = report.node;
    match Fat::new(volume).word(last)? {
        END_OF_CHAIN => {}
        next if next > BAD_CLUSTER => {
            let (cluster, found) = (last, chain.clusters().into());
            let link = Check::ChainLink {
                cluster,
                found,
                next,
            };
            report.add(false, link.at(id, at));
        }
        _ => {
            let need = chain.clusters().into();
            report.add(true, Check::ChainLong { need }.at(id, at));
        }
    }
    Ok(())
}

fn entries(session: &mut Session<'_>, id: NodeId, report: &mut Report<'_>) -> Result<()> {
    let chain = match session.chain(id) {
        Ok(chain) => chain,
        Err(error) => return report.damage(error),
    };
    let volume = session.volume;
    let mut slots = Slots::new(volume, &chain, Some(id));
    let mut names = HashSet::new();
    let (mut slot, limit) = (0, volume.limits.dir_entries);
    while let Some((found, next)) = slots.next_item(slot)? {
        match found {
            Found::Set(set) | Found::Stranded(set) => {
                if let Err(check) = set.visible_name() {
                    report.add(true, slots.error(check, slot));
                }
                if !names.insert(volume.upcase.name(&set.name())) {
                    let name = String::from_utf16_lossy(&set.name());
                    report.add(true, slots.error(Check::NameTwice { name }, slot));
                }
            }
            Found::Damaged(check) => {
                let fatal = !matches!(check, Check::Stray { .. });
                report.add(fatal, slots.error(check, slot));
            }
            Found::Other { entry } if id != ROOT => {
                let found = entry[0];
                report.add(true, slots.error(Check::Misplaced { found }, slot));
            }
            Found::Other { .. } | Found::Benign { .. } | Found::Free | Found::Departed => {}
        }
        if u64_from(names.len()) > limit {
            report.add(
                true,
                Error::limit(Bound::Entries, "entries of a directory", limit),
            );
            return Ok(());
        }
        slot = next;
    }
    let behind = match session.state.behind_ends.remove(&id) {
        Some(found) => found,
        None => behind(&mut slots, slot)?,
    };
    if let Some(error) = behind {
        report.add(true, error);
    }
    Ok(())
}

/// Returns an error for the first entry beyond the end of a directory at slot `end`.
fn behind(slots: &mut Slots<'_>, end: u32) -> Result<Option<Error>> {
    // This is an error because Linux refuses to create names in such a directory.
    let first = slots.first_behind(end)?;
    Ok(first.map(|(slot, found)| slots.error(Check::BehindEnd { found }, slot)))
}

fn left_to_the_reader(error: Error) -> Result<()> {
    match error {
        Error::Io { .. } => Err(error),
        _ => Ok(()),
    }
}
