//! Random damage from a fixed seed: a repair terminates, leaves a volume that all checkers find
//! clean or reports unrepaired damage, and loses no readable data.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_exfat::repair::{Answer, RepairOptions};
use forerun_exfat::{Exfat, fuzzing};
use forerun_io::MemorySource;
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::mutate::each;
use forerun_testkit::rng::Rng;
use forerun_vfs::OpenWith;

use crate::repairing::{self, Files, Map, files, filled, fsck, mend_with, told};

/// Number of mutations of each of two volumes.
const ROUNDS: usize = 700;
/// `fsck.exfat` checks one in this many.
const FSCK_ONE_IN: usize = 8;

/// Offsets of meaningful bytes: directories, bitmap, up-case table, and the used part of the FAT.
struct Places {
    clusters: Vec<usize>,
    map: Map,
}

impl Places {
    fn of(image: &[u8]) -> Self {
        let map = Map::of(image);
        let clusters = (2..map.clusters + 2).map(|number| (number, map.at(number)));
        let says = |&(number, at): &(u32, usize)| {
            number < 8
                || [0, 32, 64]
                    .iter()
                    .any(|slot| matches!(image[at + slot], 0x85 | 0xC0 | 0xC1))
        };
        let clusters = clusters.filter(says).map(|(_, at)| at).collect();
        Self { clusters, map }
    }

    fn mutate(&self, image: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut bytes = image.to_vec();
        for _ in 0..=rng.below(3) {
            let cluster =
                |rng: &mut Rng| self.clusters[rng.below(self.clusters.len() as u64) as usize];
            if rng.below(4) == 0 {
                let at = self.map.fat + rng.below(400) as usize * 4;
                let word = match rng.below(3) {
                    0 => u32::MAX,
                    1 => rng.below(400) as u32,
                    _ => 0,
                };
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                continue;
            }
            let at = cluster(rng) + rng.below(self.map.cluster.min(1024) as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => bytes[at] = [0, 0xFF, 0x85, 0xC0, 0xC1, 0x05][rng.below(6) as usize],
                _ => {
                    let from = cluster(rng);
                    bytes.copy_within(from..from + 32, at / 32 * 32);
                }
            }
        }
        bytes
    }
}

fn opens(bytes: &[u8]) -> bool {
    Exfat::open(OpenWith::new(Arc::new(MemorySource::new(bytes.to_vec())))).is_ok()
}

/// Asserts that every file that was intact before the repair is unchanged.
fn assert_kept(sound: &Files, before: &[u8], after: &[u8], what: &str) {
    if !opens(before) || !opens(after) {
        return;
    }
    let after = files(after);
    for (path, content) in files(before) {
        if sound.get(&path) == Some(&content) {
            assert!(after.get(&path) == Some(&content), "{what}: {path} is lost");
        }
    }
}

#[test]
fn nothing_that_can_be_read_is_lost() {
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for cluster in ["512", "4K"] {
        let Some(image) = filled(cluster) else { return };
        let (sound, places) = (files(&image), Places::of(&image));
        let mut rng = Rng::new(11);
        for round in 0..ROUNDS {
            let what = format!("clusters of {cluster}, round {round}");
            let before = places.mutate(&image, &mut rng);
            let options = RepairOptions::default();
            let (after, summary, _) = mend_with(before.clone(), &options, Answer::Yes);
            let summary = summary.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_kept(&sound, &before, &after, &what);
            let left = format!("{:?}", summary.left.keys().collect::<Vec<_>>());
            *outcomes.entry(left).or_default() += 1;
            if summary.remains() > 0 {
                continue;
            }
            assert_eq!(told(&after), [""; 0], "{what}");
            // The checkers ignore vendor entries.
            let said = match round % FSCK_ONE_IN {
                0 => fsck(&after),
                _ => None,
            };
            let lines = said.iter().flat_map(|said| said.lines());
            let mut errors = lines.filter(|line| line.contains("ERROR"));
            let others = |line: &str| line.contains("unknown entry type");
            assert!(errors.all(others), "{what}: {said:?}");
            let report = judge(&MemorySource::new(after)).unwrap();
            let findings = report.findings.iter().map(ToString::to_string);
            let findings: Vec<_> = findings.collect();
            assert!(findings.is_empty(), "{what}: {findings:?}");
        }
    }
    let whole = outcomes.get("[]").copied().unwrap_or(0);
    assert!(whole * 100 > ROUNDS * 2 * 97, "{outcomes:?}");
}

#[test]
fn any_answers() {
    let Some(image) = filled("512") else { return };
    let (sound, places) = (files(&image), Places::of(&image));
    let mut rng = Rng::new(12);
    for round in 0..100 {
        let what = format!("round {round}");
        let before = places.mutate(&image, &mut rng);
        let answers = rng.next_u64();
        let mut number = 0;
        let (after, summary) = repairing::mend_by(before.clone(), &mut |finding| {
            number = (number + 1) % 64;
            if answers >> number & 1 == 0 && !finding.kind.loses_data() {
                Answer::Yes
            } else {
                Answer::No
            }
        });
        summary.unwrap();
        assert_kept(&sound, &before, &after, &what);
    }
}

#[test]
fn whatever_bytes_there_are() {
    let image = fuzzing::image();
    let mut rng = Rng::new(13);
    let mut run = |bytes: &[u8]| {
        let errors = fuzzing::mend(bytes, rng.next_u64());
        assert!(errors.is_empty(), "{errors:?}");
    };
    each(&image, 1500, &mut run);
    // The small, dense structures: FAT, bitmap, directories.
    let (from, to) = (fuzzing::FAT, fuzzing::cluster(10));
    each(&image[from..to], 2500, |bytes| {
        let mut image = image.clone();
        let len = bytes.len().min(to - from);
        image[from..from + len].copy_from_slice(&bytes[..len]);
        run(&image);
    });
}
