//! Computes from a trace the states that a crash may leave.
//!
//! Between two flushes, a device may keep any part of the writes, torn at any sector. If the writes
//! are few, all combinations are built. Otherwise only the states that drivers usually get wrong
//! are: every prefix, all but one, one torn, and a sample. The selection depends only on the trace
//! and the seed.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use forerun_io::u64_from;

use super::{Event, SECTOR, Sector, Snapshot};
use crate::rng::Rng;

/// The limits of the enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Every subset of up to this many writes, and of up to this many sectors, is built.
    pub exhaustive: usize,
    /// Random subsets of larger sets.
    pub samples: usize,
    pub seed: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            exhaustive: 12,
            samples: 512,
            seed: 1,
        }
    }
}

#[derive(Clone)]
pub struct Crash {
    pub state: Snapshot,
    /// Number of operations whose writes may have reached the device.
    pub begun: usize,
    /// Number of operations that had returned, at the latest moment at which the crash may have
    /// happened.
    pub returned: usize,
    /// Number of flushes before the crash.
    epoch: usize,
    kept: Vec<bool>,
    atoms: Vec<(usize, u64)>,
}

impl fmt::Debug for Crash {
    /// Shows which sectors of which writes since the last flush were kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after flush {}, ", self.epoch)?;
        write!(f, "operation {} returned: kept", self.returned)?;
        let mut any = false;
        for ((event, sector), _) in self.atoms.iter().zip(&self.kept).filter(|(_, kept)| **kept) {
            any = true;
            write!(f, " {event}@{sector:#x}")?;
        }
        if any { Ok(()) } else { f.write_str(" nothing") }
    }
}

/// Visits the states that a crash during `trace` may leave on `start`. Equal states are visited
/// once for the same begun and acknowledged operations. Returns how many states were built,
/// including equal ones.
pub fn crashes(
    start: &Snapshot,
    trace: &[Event],
    bounds: &Bounds,
    visit: &mut dyn FnMut(Crash),
) -> u64 {
    let mut durable = start.clone();
    let mut seen = HashSet::new();
    let mut rng = Rng::new(bounds.seed);
    let mut built = 0;
    let (mut begun, mut returned) = (0, 0);
    for (number, events) in epochs(trace).into_iter().enumerate() {
        let count = |step: &Event| trace[events.clone()].iter().filter(|e| *e == step).count();
        begun += count(&Event::Begun);
        returned += count(&Event::Returned);
        let epoch = Epoch::new(trace, events);
        epoch.choices(bounds, &mut rng, &mut |kept| {
            built += 1;
            let chosen = epoch.sectors(kept);
            let hash = chosen.iter().fold(durable.hash(), |hash, (&index, &atom)| {
                hash ^ durable.hash_change(index, &epoch.atoms[atom].content)
            });
            if seen.insert((hash, begun, returned)) {
                visit(Crash {
                    state: durable.with(epoch.contents(&chosen)),
                    begun,
                    returned,
                    epoch: number,
                    kept: kept.to_vec(),
                    atoms: epoch.atoms.iter().map(|a| (a.event, a.sector)).collect(),
                });
            }
        });
        let all = vec![true; epoch.atoms.len()];
        durable = durable.with(epoch.contents(&epoch.sectors(&all)));
    }
    built
}

/// Returns the events between flushes. The last range ends with the trace.
fn epochs(trace: &[Event]) -> Vec<Range<usize>> {
    let mut epochs = Vec::new();
    let mut start = 0;
    for (index, event) in trace.iter().enumerate() {
        if *event == Event::Flush {
            epochs.push(start..index);
            start = index + 1;
        }
    }
    epochs.push(start..trace.len());
    epochs
}

/// A sector of a write: the unit that is kept or lost.
struct Atom {
    event: usize,
    sector: u64,
    content: Sector,
}

struct Write {
    atoms: Range<usize>,
    forced: bool,
    contents: bool,
}

struct Epoch {
    atoms: Vec<Atom>,
    writes: Vec<Write>,
}

impl Epoch {
    fn new(trace: &[Event], events: Range<usize>) -> Self {
        let mut epoch = Self {
            atoms: Vec::new(),
            writes: Vec::new(),
        };
        for index in events {
            let Event::Write {
                offset,
                data,
                forced,
                contents,
            } = &trace[index]
            else {
                continue;
            };
            let first = epoch.atoms.len();
            let start = offset / u64_from(SECTOR);
            for (sector, bytes) in (start..).zip(data.chunks_exact(SECTOR)) {
                epoch.atoms.push(Atom {
                    event: index,
                    sector,
                    content: Sector::new(sector, bytes.try_into().expect("a sector")),
                });
            }
            epoch.writes.push(Write {
                atoms: first..epoch.atoms.len(),
                forced: *forced,
                contents: *contents,
            });
        }
        epoch
    }

    /// Returns the last kept atom of each sector.
    fn sectors(&self, kept: &[bool]) -> BTreeMap<u64, usize> {
        let atoms = self.atoms.iter().enumerate();
        let kept = atoms.filter(|(index, _)| kept[*index]);
        kept.map(|(index, atom)| (atom.sector, index)).collect()
    }

    fn contents<'a>(
        &'a self,
        chosen: &'a BTreeMap<u64, usize>,
    ) -> impl Iterator<Item = (u64, Sector)> + 'a {
        chosen
            .iter()
            .map(|(&sector, &atom)| (sector, self.atoms[atom].content.clone()))
    }

    fn choices(&self, bounds: &Bounds, rng: &mut Rng, visit: &mut dyn FnMut(&[bool])) {
        let mut offer = |kept: &[bool]| {
            if self.possible(kept) {
                visit(kept);
            }
        };
        self.prefixes(&mut offer);
        if self.atoms.len() <= bounds.exhaustive {
            subsets(self.atoms.len(), &mut offer);
            return;
        }
        if self.writes.len() <= bounds.exhaustive {
            subsets(self.writes.len(), &mut |kept| offer(&self.whole(kept)));
        } else {
            for missing in 0..self.writes.len() {
                let mut kept = vec![true; self.writes.len()];
                kept[missing] = false;
                offer(&self.whole(&kept));
            }
            for _ in 0..bounds.samples {
                offer(&self.whole(&random(self.writes.len(), rng)));
            }
        }
        self.torn(bounds, rng, &mut offer);
    }

    fn prefixes(&self, offer: &mut dyn FnMut(&[bool])) {
        for len in 0..=self.writes.len() {
            let kept: Vec<bool> = (0..self.writes.len()).map(|write| write < len).collect();
            offer(&self.whole(&kept));
        }
    }

    /// Offers each write torn in turn, with the writes before it, and with all others.
    fn torn(&self, bounds: &Bounds, rng: &mut Rng, offer: &mut dyn FnMut(&[bool])) {
        let count = self.writes.len();
        let mut tearable = false;
        for (number, write) in self.writes.iter().enumerate() {
            let len = write.atoms.len();
            if len < 2 {
                continue;
            }
            tearable |= !write.contents;
            let before: Vec<bool> = (0..count).map(|other| other < number).collect();
            let others: Vec<bool> = (0..count).map(|other| other != number).collect();
            let cuts = if write.contents {
                len / 2..len / 2 + 1
            } else {
                1..len
            };
            for rest in [self.whole(&before), self.whole(&others)] {
                for cut in cuts.clone() {
                    for keeps in [0..cut, cut..len] {
                        let mut kept = rest.clone();
                        for part in keeps {
                            kept[write.atoms.start + part] = true;
                        }
                        offer(&kept);
                    }
                }
            }
        }
        if tearable {
            for _ in 0..bounds.samples / 8 {
                offer(&self.random_sectors(rng));
            }
        }
    }

    /// Draws any sectors of metadata, and whole writes of contents.
    fn random_sectors(&self, rng: &mut Rng) -> Vec<bool> {
        let mut kept = random(self.atoms.len(), rng);
        for write in self.writes.iter().filter(|write| write.contents) {
            let whole = rng.below(2) == 1;
            kept[write.atoms.clone()].fill(whole);
        }
        kept
    }

    fn whole(&self, writes: &[bool]) -> Vec<bool> {
        let mut kept = vec![false; self.atoms.len()];
        for (write, _) in self.writes.iter().zip(writes).filter(|(_, kept)| **kept) {
            kept[write.atoms.clone()].fill(true);
        }
        kept
    }

    /// Returns whether a device can keep these sectors: a forced write is complete before any later
    /// one.
    fn possible(&self, kept: &[bool]) -> bool {
        let Some(last) = kept.iter().rposition(|&kept| kept) else {
            return true;
        };
        let forced = self.writes.iter().filter(|write| write.forced);
        forced
            .filter(|write| write.atoms.end <= last)
            .all(|write| kept[write.atoms.clone()].iter().all(|&kept| kept))
    }
}

fn subsets(len: usize, visit: &mut dyn FnMut(&[bool])) {
    for bits in 0..1_u64 << len {
        let kept: Vec<bool> = (0..len).map(|index| bits >> index & 1 == 1).collect();
        visit(&kept);
    }
}

/// Draws each with a probability that is drawn first, so that there are sparse and dense choices
/// too.
fn random(len: usize, rng: &mut Rng) -> Vec<bool> {
    let odds = 1 + rng.below(15);
    let draw = |_| rng.below(16) < odds;
    (0..len).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, sectors: usize, byte: u8) -> Event {
        Event::Write {
            offset: sector * u64_from(SECTOR),
            data: vec![byte; sectors * SECTOR].into(),
            forced: false,
            contents: false,
        }
    }

    /// Returns the first bytes of each sector, in each state.
    fn states(events: Vec<Event>, bounds: &Bounds) -> Vec<String> {
        let start = Snapshot::new(vec![b'.'; 4 * SECTOR]);
        let mut states = Vec::new();
        crashes(&start, &events, bounds, &mut |crash| {
            let bytes = crash.state.bytes();
            let letters = bytes
                .chunks_exact(SECTOR)
                .map(|sector| char::from(sector[0]));
            states.push(letters.collect());
            assert_eq!(
                crash.state.hash() == start.hash(),
                bytes == start.bytes(),
                "hashes tell states apart"
            );
        });
        states.sort();
        states
    }

    #[test]
    fn every_subset_of_an_epoch_and_only_after_what_was_flushed() {
        let events = vec![
            write(0, 1, b'a'),
            Event::Flush,
            write(1, 1, b'b'),
            write(2, 1, b'c'),
        ];
        let expected = ["....", "a...", "a.c.", "ab..", "abc."];
        assert_eq!(states(events, &Bounds::default()), expected);
    }

    #[test]
    fn a_write_of_two_sectors_is_torn_both_ways() {
        let torn = ["....", ".a..", "a...", "aa.."];
        assert_eq!(states(vec![write(0, 2, b'a')], &Bounds::default()), torn);
        let few = Bounds {
            exhaustive: 1,
            samples: 0,
            ..Bounds::default()
        };
        assert_eq!(states(vec![write(0, 2, b'a')], &few), torn);
    }

    #[test]
    fn of_two_writes_of_one_sector_the_later_wins() {
        let events = vec![write(0, 1, b'a'), write(0, 1, b'b')];
        assert_eq!(states(events, &Bounds::default()), ["....", "a...", "b..."]);
    }

    #[test]
    fn a_forced_write_is_there_before_what_follows() {
        let mut first = write(0, 1, b'a');
        if let Event::Write { forced, .. } = &mut first {
            *forced = true;
        }
        let events = vec![first, write(1, 1, b'b')];
        assert_eq!(states(events, &Bounds::default()), ["....", "a...", "ab.."]);
    }

    #[test]
    fn an_acknowledgement_makes_equal_states_different() {
        let events = vec![
            Event::Begun,
            write(0, 1, b'a'),
            Event::Flush,
            Event::Returned,
        ];
        assert_eq!(states(events, &Bounds::default()), ["....", "a...", "a..."]);
    }

    #[test]
    fn many_writes_are_sampled_with_all_prefixes_and_all_but_one() {
        let events: Vec<Event> = (0..4).map(|sector| write(sector, 1, b'x')).collect();
        let bounds = Bounds {
            exhaustive: 3,
            samples: 0,
            ..Bounds::default()
        };
        let expected = [
            "....", ".xxx", "x...", "x.xx", "xx..", "xx.x", "xxx.", "xxxx",
        ];
        assert_eq!(states(events.clone(), &bounds), expected);
        let sampled = Bounds {
            samples: 4096,
            ..bounds
        };
        assert_eq!(states(events, &sampled).len(), 16);
    }

    #[test]
    fn writing_what_was_there_is_no_new_state() {
        let events = vec![write(0, 1, b'a'), Event::Flush, write(0, 1, b'.')];
        assert_eq!(states(events, &Bounds::default()), ["....", "a..."]);
    }

    #[test]
    fn hashes_do_not_depend_on_how_a_state_came_about() {
        let start = Snapshot::new(vec![0; 8 * SECTOR]);
        let sector = |byte| Sector::new(3, [byte; SECTOR]);
        let once = start.with([(3, sector(7))]);
        let twice = start.with([(3, sector(5))]).with([(3, sector(7))]);
        assert_eq!(once.hash(), twice.hash());
        assert_ne!(once.hash(), start.hash());
        assert_eq!(twice.with([(3, sector(0))]).hash(), start.hash());
        assert_eq!(once.len(), u64_from(once.bytes().len()));
    }
}
