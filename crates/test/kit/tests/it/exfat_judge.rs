//! Compares the exFAT judge with `mkfs.exfat`, `exfat-fuse` and `fsck.exfat`. Volumes that they
//! make or call clean are clean, and each kind of damage is found as what it is.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use forerun_io::{BlockDevice, MemorySource};
use forerun_testkit::exfat_judge::{Class, Report, What, judge};
use forerun_testkit::powercut::Snapshot;
use forerun_testkit::{Mounted, TempDir, children, exfat_tools, require, temp_dir};

const VOLUME: u64 = 4 << 20;

fn read(bytes: &[u8]) -> Report {
    judge(&MemorySource::new(bytes.to_vec())).unwrap()
}

fn mkfs(path: &Path, cluster: &str) -> bool {
    exfat_tools::mkfs(path, VOLUME, &["-c", cluster, "-L", "judged"])
}

/// Creates an image that `exfat-fuse` has filled: directories, a name of 255 units, fragmented and
/// sparse files, holes in directories.
fn filled(dir: &TempDir, cluster: &str) -> Option<Vec<u8>> {
    let image = dir.path().join("image");
    if !mkfs(&image, cluster) || !require::root() || !require::fuse() {
        return None;
    }
    require::program("mount.exfat-fuse")?;
    let mount = dir.path().join("mount");
    let mounted = Mounted::exfat_fuse(&image, mount.clone(), "rw", &[]);
    populate(&mount).unwrap();
    drop(mounted);
    Some(fs::read(&image).unwrap())
}

fn populate(root: &Path) -> std::io::Result<()> {
    fs::create_dir(root.join("dir"))?;
    fs::create_dir(root.join("dir/below"))?;
    fs::write(root.join("dir/one"), vec![1; 10_000])?;
    // In two parts, with another file in between. The server may not yet have freed the clusters of
    // the removed file, because it learns later that the file was closed.
    let mut fragmented = fs::File::create(root.join("dir/below/fragmented"))?;
    fragmented.write_all(&[3; 50_000])?;
    fs::write(root.join("dir/two"), vec![2; 10_000])?;
    fragmented.write_all(&[3; 50_000])?;
    drop(fragmented);
    fs::write(root.join("dir").join("n".repeat(255)), b"long")?;
    fs::remove_file(root.join("dir/one"))?;
    fs::write(root.join("empty"), b"")?;
    fs::write(root.join("\u{e4}\u{df}\u{20ac}"), b"not ASCII")?;
    let sparse = fs::File::create(root.join("sparse"))?;
    sparse.set_len(50_000)
}

#[test]
fn what_mkfs_makes_is_clean() {
    let dir = temp_dir("judge-mkfs");
    for cluster in ["512", "4096", "32768"] {
        let image = dir.path().join(cluster);
        if !mkfs(&image, cluster) {
            return;
        }
        let report = read(&fs::read(&image).unwrap());
        assert!(report.clean(), "{cluster}: {:?}", report.findings);
        assert_eq!(report.label, "judged");
        assert_eq!(report.geometry.cluster, cluster.parse::<u64>().unwrap());
        assert!(report.nodes.is_empty());
    }
}

#[test]
fn what_exfat_fuse_writes_is_clean_and_reads_back() {
    let dir = temp_dir("judge-fuse");
    for cluster in ["512", "4096"] {
        let Some(image) = filled(&dir, cluster) else {
            return;
        };
        let report = read(&image);
        assert!(report.clean(), "{cluster}: {:?}", report.findings);
        assert_eq!(report.nodes.len(), 8);
        let device = MemorySource::new(image);
        let content = |path: &str| {
            let node = report.find(path).unwrap_or_else(|| panic!("{path}"));
            report.content(&device, node, u64::MAX).unwrap()
        };
        assert_eq!(content("dir/two"), vec![2; 10_000]);
        assert_eq!(content("dir/below/fragmented"), vec![3; 100_000]);
        assert_eq!(content("sparse"), vec![0; 50_000]);
        assert_eq!(content("\u{e4}\u{df}\u{20ac}"), b"not ASCII");
        assert_eq!(content(&format!("dir/{}", "n".repeat(255))), b"long");
    }
}

/// Damage to an image: its name, the change, the judge's finding, and whether `fsck.exfat` sees it
/// too.
struct Damage {
    name: &'static str,
    make: fn(&mut [u8], &Report),
    found: What,
    fsck_sees_it: bool,
}

fn put32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn fat(report: &Report, cluster: u32) -> usize {
    report.geometry.fat as usize + cluster as usize * 4
}

/// Finds the entry set of `path` by the bytes of its stream extension, which contains its first
/// cluster.
fn set(image: &[u8], report: &Report, path: &str) -> usize {
    let node = report.find(path).unwrap();
    let first = node.clusters[0].to_le_bytes();
    let entries = (0..image.len()).step_by(32);
    let heap = report.geometry.heap as usize;
    entries
        .skip_while(|&at| at < heap)
        .find(|&at| image[at] == 0x85 && image[at + 32] == 0xC0 && image[at + 52..at + 56] == first)
        .unwrap()
}

/// Corrects the checksum of a set.
fn seal(image: &mut [u8], at: usize) {
    let len = (usize::from(image[at + 1]) + 1) * 32;
    let mut sum = 0_u16;
    for index in (0..len).filter(|index| !matches!(index, 2 | 3)) {
        sum = sum.rotate_right(1).wrapping_add(image[at + index].into());
    }
    image[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn bitmap_bit(image: &mut [u8], report: &Report, cluster: u32) {
    // mkfs.exfat puts the bitmap into cluster 2.
    let at = report.geometry.offset(2) as usize + (cluster as usize - 2) / 8;
    image[at] ^= 1 << ((cluster - 2) % 8);
}

/// Appends a cluster to the chain of a fragmented file.
fn longer(image: &mut [u8], report: &Report) {
    let file = report.find("dir/below/fragmented").unwrap();
    let (last, more) = (*file.clusters.last().unwrap(), report.geometry.clusters);
    put32(image, fat(report, last), more);
    put32(image, fat(report, more), u32::MAX);
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "boot checksum",
        make: |image, _| image[11 * 512 + 40] ^= 1,
        found: What::Boot,
        fsck_sees_it: true,
    },
    Damage {
        name: "a cluster of a file marked free",
        make: |image, report| {
            let cluster = report.find("dir/two").unwrap().clusters[1];
            bitmap_bit(image, report, cluster);
        },
        found: What::UsedButFree,
        fsck_sees_it: true,
    },
    Damage {
        name: "a free cluster marked used",
        make: |image, report| bitmap_bit(image, report, report.geometry.clusters),
        found: What::Leak,
        fsck_sees_it: false,
    },
    Damage {
        name: "set checksum",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            image[at + 2] ^= 1;
        },
        found: What::Checksum,
        fsck_sees_it: true,
    },
    Damage {
        name: "name hash",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            image[at + 36] ^= 1;
            seal(image, at);
        },
        found: What::NameHash,
        fsck_sees_it: true,
    },
    Damage {
        name: "half a set",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            image[at + 64] = 0x41;
        },
        found: What::CutSet,
        fsck_sees_it: true,
    },
    Damage {
        name: "more valid bytes than bytes",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            put32(image, at + 40, 10_001);
            seal(image, at);
        },
        found: What::Length,
        fsck_sees_it: true,
    },
    Damage {
        name: "two files in one cluster",
        make: |image, report| {
            let other = report.find("dir/below/fragmented").unwrap().clusters[0];
            let at = set(image, report, "dir/two");
            put32(image, at + 52, other);
            seal(image, at);
        },
        found: What::CrossLink,
        fsck_sees_it: true,
    },
    Damage {
        name: "first cluster outside the volume",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            put32(image, at + 52, report.geometry.clusters + 2);
            seal(image, at);
        },
        found: What::Chain,
        fsck_sees_it: true,
    },
    Damage {
        name: "a character no name may have",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            image[at + 66] = b'*';
            seal(image, at);
        },
        found: What::Name,
        fsck_sees_it: true,
    },
    Damage {
        name: "name entries of no set",
        make: |image, report| {
            let at = set(image, report, "dir/two");
            image[at] = 0x05;
            image[at + 32] = 0x40;
        },
        found: What::StrayName,
        fsck_sees_it: false,
    },
    Damage {
        name: "a chain that goes on in clusters of no file",
        make: |image, report| {
            longer(image, report);
            bitmap_bit(image, report, report.geometry.clusters);
        },
        found: What::LongChain,
        fsck_sees_it: true,
    },
    Damage {
        name: "a chain that goes on in a free cluster",
        make: longer,
        found: What::Chain,
        fsck_sees_it: true,
    },
    Damage {
        name: "a loop in the root's chain",
        make: |image, report| {
            let root = report.geometry.root;
            put32(image, fat(report, root), root);
        },
        found: What::CrossLink,
        fsck_sees_it: true,
    },
];

#[test]
fn each_kind_of_damage_is_found() {
    let dir = temp_dir("judge-damage");
    let Some(image) = filled(&dir, "512") else {
        return;
    };
    let before = read(&image);
    let path = dir.path().join("damaged");
    for damage in DAMAGES {
        let mut bytes = image.clone();
        (damage.make)(&mut bytes, &before);
        assert_ne!(bytes, image, "{}", damage.name);
        let found = judge(&MemorySource::new(bytes.clone())).map(|report| {
            let first = report.findings.iter().map(|finding| finding.what);
            let clean = report.after_crash().is_ok();
            let leak = damage.found.class() == Class::Leak;
            assert!(
                !clean || leak && report.dirty,
                "{}: {:?}",
                damage.name,
                report.findings
            );
            first.collect::<Vec<_>>()
        });
        let found = found.unwrap_or_else(|finding| vec![finding.what]);
        assert!(found.contains(&damage.found), "{}: {found:?}", damage.name);
        fs::write(&path, &bytes).unwrap();
        // Uses the status alone, because the report may mention damage that fsck.exfat ignores.
        let program = require::program("fsck.exfat").unwrap();
        let output = children::output(Command::new(program).arg("-n").arg(&path)).unwrap();
        let (clean, text) = (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout),
        );
        assert_eq!(!clean, damage.fsck_sees_it, "{}: {text}", damage.name);
    }
}

#[test]
fn any_byte_changed_is_survived() {
    let dir = temp_dir("judge-bytes");
    let Some(image) = filled(&dir, "4096") else {
        return;
    };
    let report = read(&image);
    let mut rng = forerun_testkit::rng::Rng::new(7);
    let start = Snapshot::new(image);
    let regions = [
        (0, 24 * 512),
        (report.geometry.fat, 4096),
        (report.geometry.heap, 64 << 10),
    ];
    let mut device = start.device();
    for round in 0..3000_u64 {
        let (start_of, len) = regions[(round % 3) as usize];
        let at = start_of + rng.below(len);
        device.write_all_at(at, &[rng.next_u64() as u8]).unwrap();
        if let Ok(report) = judge(&device) {
            let _any = report.found(&device);
        }
        if round % 16 == 0 {
            device = start.device();
        }
    }
}
