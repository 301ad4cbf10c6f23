//! Hostile volumes: the driver returns an error that names the location, and never panics, hangs or
//! uses unbounded memory.

use forerun_exfat::FORMAT;
use forerun_exfat::fuzzing::{self, DIR, FAT, PIECES, ROOT, SLOTS, WHOLE, cluster};
use forerun_testkit::conformance::check_faults;

const SETS: [usize; 3] = SLOTS;

/// Returns the errors of the image after a change to it.
fn told(change: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
    let mut image = fuzzing::image();
    change(&mut image);
    let errors = fuzzing::walk(&image);
    let told = errors
        .iter()
        .map(|error| fuzzing::check_of(error).unwrap_or_else(|| error.to_string()));
    told.collect()
}

fn contains(found: &[String], expected: &str) {
    assert!(
        found.iter().any(|text| text == expected),
        "{expected:?} in {found:#?}"
    );
}

fn u32_at(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn u64_at(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn slot(number: usize) -> usize {
    cluster(ROOT) + number * 32
}

fn fat(number: u32) -> usize {
    FAT + number as usize * 4
}

/// Corrects the checksum of a set of three entries.
fn seal_set(image: &mut [u8], at: usize) {
    let len = 32 * (usize::from(image[at + 1]) + 1);
    let sum = (0..len)
        .filter(|n| !matches!(n, 2 | 3))
        .fold(0_u16, |sum, n| {
            sum.rotate_right(1).wrapping_add(u16::from(image[at + n]))
        });
    image[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn boot_sectors() {
    for (at, value, expected) in [
        (510, 0, "boot signature 0xaa00 instead of 0xaa55"),
        (11, 1, "bytes of the boot sector that must be zero are not"),
        (108, 8, "sectors of 2^8 bytes; from 2^9 to 2^12 are allowed"),
        (109, 17, "clusters of 2^26 bytes; at most 2^25 are allowed"),
        (110, 3, "3 FATs; one or two are allowed"),
        (80, 23, "FatOffset is 23; from 24 to 4294967295 are allowed"),
        (84, 0, "FatLength is 0; from 1 to 4294967295 are allowed"),
        (
            96,
            1,
            "FirstClusterOfRootDirectory is 1; from 2 to 57 are allowed",
        ),
        (
            88,
            24,
            "ClusterHeapOffset is 24; from 25 to 4294967295 are allowed",
        ),
    ] {
        // Changes both regions, so that the backup does not help.
        let found = told(|image| {
            image[at] = value;
            image[12 * 512 + at] = value;
        });
        assert_eq!(found, [expected], "byte {at}");
    }
    let found = told(|image| image[100] = 2);
    contains(&found, "the backup boot region differs from the main one");
    assert_eq!(told(|image| image[100 + 6144] = 2).len(), 1);
}

#[test]
fn the_backup_is_used() {
    let mut image = fuzzing::image();
    image[100] ^= 1;
    // The checksum is not corrected, so the main region is invalid.
    let source = std::sync::Arc::new(forerun_io::MemorySource::new(image));
    let fs = forerun_exfat::Exfat::open(forerun_vfs::OpenWith::new(source)).unwrap();
    let details = &forerun_vfs::FileSystem::volume(&fs).details;
    assert!(
        details.iter().any(|(name, _)| *name == "boot region"),
        "{details:?}"
    );
}

#[test]
fn system_entries() {
    let found = told(|image| image[slot(1)] = 0x01);
    assert_eq!(found, ["no allocation bitmap in the root directory"]);
    let found = told(|image| image[slot(2)] = 0x02);
    contains(&found, "no up-case table in the root directory");
    let found = told(|image| u64_at(image, slot(1) + 24, 6));
    assert_eq!(
        found,
        ["the allocation bitmap is 6 bytes long; 7 are needed"]
    );
    for len in [0, 262_145] {
        let found = told(|image| u64_at(image, slot(2) + 24, len));
        let expected =
            format!("the up-case table is {len} bytes long; from 1 to 262144 are possible");
        contains(&found, &expected);
    }
    let found = told(|image| image[cluster(3) + 4] = 0x42);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("the volume stores the checksum"),
        "{found:?}"
    );
    let found = told(|image| image[slot(0) + 1] = 12);
    assert_eq!(
        found,
        ["volume label of 12 characters; at most 11 are allowed"]
    );
    let found = told(|image| image[slot(3)] = 0x86);
    assert_eq!(
        found,
        ["critical entry of unknown type 0x86 in the root directory"]
    );
}

#[test]
fn chains() {
    let found = told(|image| u32_at(image, fat(8), PIECES));
    contains(&found, "the chain comes back to cluster 6");
    let found = told(|image| u32_at(image, fat(8), 0xFFFF_FFFF));
    contains(&found, "the chain ends after 2 of 3 clusters");
    let found = told(|image| u32_at(image, fat(8), 200));
    contains(
        &found,
        "cluster 8, after 2 clusters of the chain, leads to 0xc8",
    );
    let found = told(|image| u32_at(image, fat(7), 20));
    contains(&found, "the chain goes on after the 3 clusters of the data");
    let found = told(|image| u32_at(image, fat(5), ROOT));
    contains(&found, "the chain comes back to cluster 4");
    let found = told(|image| {
        let at = slot(SETS[0]);
        u32_at(image, at + 52, 100);
        seal_set(image, at);
    });
    contains(
        &found,
        "cluster 100 of the data is not on the volume, which has 56 clusters",
    );
    let found = told(|image| {
        let at = cluster(DIR);
        u32_at(image, at + 52, 56);
        seal_set(image, at);
    });
    contains(
        &found,
        "3 clusters from 56 on reach past the volume's 56 clusters",
    );
    let found = told(|image| {
        let at = cluster(DIR);
        u32_at(image, at + 52, 0);
        seal_set(image, at);
    });
    contains(&found, "1500 bytes of data, but no cluster");
    let found = told(|image| {
        let at = cluster(DIR);
        u64_at(image, at + 56, 1 << 40);
        seal_set(image, at);
    });
    contains(
        &found,
        "1099511627776 bytes of data; the volume holds 28672",
    );
}

#[test]
fn a_bitmap_that_lies() {
    let bit = |image: &mut Vec<u8>, number: u32| {
        image[cluster(2) + (number as usize - 2) / 8] ^= 1 << ((number - 2) % 8);
    };
    let found = told(|image| bit(image, WHOLE + 1));
    assert_eq!(found, ["cluster 13 is in use, but marked free"]);
    let found = told(|image| {
        bit(image, 30);
        bit(image, 31);
    });
    assert_eq!(
        found,
        ["2 clusters from 30 on belong to no file, but are marked used"]
    );
    let found = told(|image| {
        let at = cluster(DIR);
        u32_at(image, at + 52, 8);
        seal_set(image, at);
    });
    assert!(
        found
            .iter()
            .any(|text| text.contains("also belongs to another file or directory"))
    );
}

#[test]
fn sets() {
    let at = slot(SETS[0]);
    let found = told(|image| image[at + 4] = 0x21);
    assert_eq!(
        found
            .iter()
            .filter(|text| text.starts_with("the set stores the checksum"))
            .count(),
        2
    );
    let found = told(|image| image[at + 1] = 1);
    contains(&found, "set of 1 secondary entries; at least 2 are needed");
    let found = told(|image| image[at + 64] = 0x41);
    contains(&found, "set of 2 secondary entries, but only 1 follow");
    let found = told(|image| image[at] = 0x05);
    contains(&found, "entry of type 0xc0 belongs to no set");
    let found = told(|image| {
        image[at + 35] = 16;
        seal_set(image, at);
    });
    contains(&found, "name of 16 characters in 1 entries");
    let found = told(|image| {
        image[at + 66] = b'/';
        seal_set(image, at);
    });
    contains(&found, "name contains a slash: \"/ieces\"");
    let found = told(|image| {
        image[at + 66] = b'q';
        seal_set(image, at);
    });
    assert!(
        found
            .iter()
            .any(|text| text.starts_with("the set stores the name hash")),
        "{found:?}"
    );
    let found = told(|image| {
        u64_at(image, at + 40, 1401);
        seal_set(image, at);
    });
    contains(&found, "the valid length is 1401, the data length 1400");
    let found = told(|image| {
        let set = image[at..at + 96].to_vec();
        image[slot(SETS[1])..slot(SETS[1]) + 96].copy_from_slice(&set);
    });
    contains(&found, "the directory has the name \"pieces\" twice");
    // The set ends with the cluster: the chain of the root has only its first cluster.
    let found = told(|image| u32_at(image, fat(ROOT), 0xFFFF_FFFF));
    contains(&found, "set of 3 secondary entries, but only 0 follow");
    // The directory refers to its own parent.
    let found = told(|image| {
        u32_at(image, slot(SETS[1]) + 52, ROOT);
        seal_set(image, slot(SETS[1]));
    });
    assert!(
        found
            .iter()
            .any(|text| text.contains("below itself") || text.contains("depth")),
        "{found:?}"
    );
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    check_faults(&FORMAT, &fuzzing::image());
}

/// Linux 6.1 mounts each of these.
#[test]
fn what_linux_mounts_is_read() {
    type Change = fn(&mut Vec<u8>);
    fn boot(image: &mut [u8], at: usize, value: u8) {
        image[at] = value;
        image[12 * 512 + at] = value;
        fuzzing::seal(image);
    }
    let sound = fuzzing::image();
    let names = |image: &[u8]| {
        let source = std::sync::Arc::new(forerun_io::MemorySource::new(image));
        let fs = forerun_exfat::Exfat::open(forerun_vfs::OpenWith::new(source)).unwrap();
        let names = crate::common::list(&fs, forerun_vfs::FileSystem::root(&fs));
        (names, forerun_vfs::FileSystem::volume(&fs).warnings.len())
    };
    let (all, _) = names(&sound);
    let cases: [(&str, bool, Change); 8] = [
        ("a longer volume", false, |image| boot(image, 72, 83)),
        ("no length", false, |image| boot(image, 72, 0)),
        ("revision 2.00", false, |image| boot(image, 105, 2)),
        ("the second of one FAT", false, |image| image[106] = 1),
        ("no table", true, |image| image[slot(2)] = 0x02),
        ("a long label", true, |image| image[slot(0) + 1] = 12),
        ("an unknown entry", true, |image| {
            let mut slots = (0..16).map(|slot| cluster(5) + slot * 32);
            let free = slots.find(|&at| image[at] == 0);
            image[free.unwrap()] = 0x86;
        }),
        ("another end of the root", false, |image| {
            u32_at(image, fat(5), 0xFFFF_FFF8);
        }),
    ];
    for (what, is_warned, change) in cases {
        let mut image = sound.clone();
        change(&mut image);
        let (found, warnings) = names(&image);
        assert_eq!(found, all, "{what}");
        assert_eq!(warnings > 0, is_warned, "{what}");
    }
}
