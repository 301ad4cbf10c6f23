//! Every option of the writer, checked by Linux and unsquashfs.
//!
//! The table has every value of every option, and combinations in which one option changes the
//! effect of another. `FORERUN_MATRIX=all` adds every combination of encoding, block size and kind
//! of fragments, which takes minutes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use forerun_build::Priorities;
use forerun_codec::{Bcj, BcjSet, Codec, Encoding, LzmaTuning, ZlibStrategies, ZlibStrategy};
use forerun_squashfs::write::{Compress, Fragments, SquashfsOptions};
use forerun_testkit::everything::small;
use forerun_testkit::matrix::{Judged, Row, Sample, Table, every_combination, judge_all};
use forerun_testkit::memory_dir;
use forerun_testkit::require::kernel_option;

use crate::writer_common::{image, mounted, oracles, run};

fn with(encoding: Encoding) -> SquashfsOptions {
    SquashfsOptions {
        encoding,
        ..SquashfsOptions::default()
    }
}

fn zlib(level: u8, window_bits: u8, strategies: &[ZlibStrategy]) -> Encoding {
    Encoding::Zlib {
        level,
        window_bits,
        strategies: strategies.iter().copied().collect::<ZlibStrategies>(),
    }
}

fn xz(dictionary: Option<u32>, filters: &[Bcj]) -> Encoding {
    Encoding::Xz {
        dictionary,
        filters: filters.iter().copied().collect::<BcjSet>(),
        tuning: LzmaTuning::default(),
    }
}

/// Returns the filters that the writer accepts and that readers of 2023 know.
fn filters() -> Vec<Bcj> {
    let all = Bcj::ALL.iter().copied();
    all.filter(|filter| !matches!(filter, Bcj::Ia64 | Bcj::Arm64 | Bcj::RiscV))
        .collect()
}

fn encodings() -> Vec<(String, Encoding)> {
    let mut encodings = Vec::new();
    for level in [1, 6, 9] {
        encodings.push((format!("zlib level {level}"), zlib(level, 15, &[])));
    }
    for window in [8, 9, 12] {
        encodings.push((format!("zlib window {window}"), zlib(9, window, &[])));
    }
    for &one in ZlibStrategy::ALL {
        encodings.push((format!("zlib {one:?}"), zlib(9, 15, &[one])));
    }
    let all = ZlibStrategy::ALL;
    encodings.push(("zlib, all strategies".into(), zlib(9, 15, all)));
    for codec in [Codec::Lzma, Codec::Lzo] {
        let encoding = Encoding::default_of(codec).unwrap();
        encodings.push((codec.name().into(), encoding));
    }
    encodings.push(("xz".into(), xz(None, &[])));
    for dictionary in [8 << 10, 12 << 10, 96 << 10] {
        let name = format!("xz dictionary {dictionary}");
        encodings.push((name, xz(Some(dictionary), &[])));
    }
    for filter in filters() {
        encodings.push((format!("xz {filter:?}"), xz(None, &[filter])));
    }
    encodings.push(("xz, all filters".into(), xz(None, &filters())));
    let changes: [fn(&mut LzmaTuning); 9] = [
        |tuning| tuning.preset = Some(1),
        |tuning| tuning.preset = Some(9),
        |tuning| tuning.extreme = true,
        |tuning| tuning.lc = Some(1),
        |tuning| tuning.lc = Some(4),
        |tuning| tuning.lp = Some(0),
        |tuning| tuning.lp = Some(1),
        |tuning| tuning.pb = Some(0),
        |tuning| tuning.pb = Some(4),
    ];
    for change in changes {
        let mut tuning = LzmaTuning::default();
        change(&mut tuning);
        let encoding = Encoding::Xz {
            dictionary: None,
            filters: BcjSet::default(),
            tuning,
        };
        encodings.push((format!("xz {tuning:?}"), encoding));
    }
    for high in [false, true] {
        encodings.push((format!("lz4 high {high}"), Encoding::Lz4 { high }));
    }
    for level in [1, 15, 22] {
        encodings.push((format!("zstd level {level}"), Encoding::Zstd { level }));
    }
    encodings
}

const SIZES: [u32; 3] = [4 << 10, 8 << 10, 1 << 20];
const WAYS: [Fragments; 3] = [Fragments::Always, Fragments::No, Fragments::Yes];

/// Adds rows for block sizes, which change the layout and the encoders' input.
fn layouts(rows: &mut Vec<Row<SquashfsOptions>>) {
    let mut add = |name: &str, encoding: &Encoding, block_size, fragments| {
        rows.push(Row::new(
            format!("{name}, blocks of {block_size}, fragments {fragments:?}"),
            SquashfsOptions {
                block_size,
                fragments,
                ..with(encoding.clone())
            },
        ));
    };
    if every_combination() {
        for (name, encoding) in encodings() {
            for block_size in SIZES {
                // The writer rejects a dictionary longer than a block.
                let fits = |dictionary| dictionary <= block_size;
                if let Encoding::Xz { dictionary, .. } = encoding
                    && !dictionary.is_none_or(fits)
                {
                    continue;
                }
                for fragments in WAYS {
                    add(&name, &encoding, block_size, fragments);
                }
            }
        }
    }
    for block_size in SIZES {
        for fragments in WAYS {
            add("fast zlib", &zlib(1, 15, &[]), block_size, fragments);
        }
    }
    for (name, encoding) in [
        ("default xz", xz(None, &[])),
        ("xz, two filters", xz(None, &[Bcj::X86, Bcj::Arm])),
        ("fast lz4", Encoding::Lz4 { high: false }),
        ("fast zstd", Encoding::Zstd { level: 1 }),
        ("default lzma", Encoding::Lzma),
        ("default lzo", Encoding::default_of(Codec::Lzo).unwrap()),
    ] {
        for (block_size, fragments) in SIZES.into_iter().zip(WAYS) {
            add(name, &encoding, block_size, fragments);
        }
    }
}

fn rows(priorities: &Priorities) -> Vec<Row<SquashfsOptions>> {
    let mut rows: Vec<_> = encodings()
        .into_iter()
        .map(|(name, encoding)| Row::new(name, with(encoding)))
        .collect();
    layouts(&mut rows);
    let fast = || with(zlib(1, 15, &[]));
    let mut add = |name: &str, change: &dyn Fn(&mut SquashfsOptions)| {
        let mut options = fast();
        change(&mut options);
        rows.push(Row::new(name, options));
    };
    add("duplicates stored", &|to| to.duplicates = false);
    add("holes stored", &|to| to.sparse = false);
    add("no export table", &|to| to.exportable = false);
    add("no xattrs", &|to| to.xattrs = false);
    add("stored inodes", &|to| to.compress.inodes = false);
    add("stored data", &|to| to.compress.data = false);
    add("stored fragments", &|to| to.compress.fragments = false);
    add("stored ids", &|to| to.compress.ids = false);
    add("stored xattrs", &|to| to.compress.xattrs = false);
    add("all stored", &|to| {
        to.compress = Compress {
            inodes: false,
            data: false,
            fragments: false,
            ids: false,
            xattrs: false,
        };
    });
    add("time", &|to| to.mkfs_time = Some(1));
    add("not padded", &|to| to.pad = false);
    add("three threads", &|to| to.threads = 3);
    add("little memory", &|to| to.memory = 1 << 20);
    add("priorities", &|to| {
        to.priorities = priorities.clone();
    });
    rows
}

fn judge(sample: &Sample, row: &Row<SquashfsOptions>, dir: &Path) -> Judged {
    let (path, options) = (dir.join("image"), &row.options);
    let bytes = image(&sample.tree, options).unwrap();
    // A larger block mixes code of several machines, so that one filter wins for all blocks.
    if options.block_size == SquashfsOptions::default().block_size {
        uses_filters(&bytes, options);
    }
    fs::write(&path, bytes).unwrap();
    let mut judged = Judged::default();

    let extracted = dir.join("extracted");
    let mut unsquashfs = Command::new("unsquashfs");
    unsquashfs.args(["-no-progress", "-xattrs", "-processors", "1", "-d"]);
    let told = run(unsquashfs.arg(&extracted).arg(&path));
    assert!(!told.to_lowercase().contains("failed"), "{told}");
    sample.assert_same(&extracted, options.xattrs);
    judged.by("unsquashfs");

    if let Some(why) = unreadable(&options.encoding) {
        judged.not_by("the kernel", why);
        return judged;
    }
    // Loop devices have whole sectors.
    let len = fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(len.next_multiple_of(4096)).unwrap();
    let mounted = mounted(&path, dir.join("mnt"));
    sample.assert_same(&mounted.path, options.xattrs);
    judged.by("the kernel");
    judged
}

/// Returns why Linux cannot read this encoding, or `None`.
fn unreadable(encoding: &Encoding) -> Option<String> {
    let options: Vec<&str> = match encoding {
        Encoding::Lzma => return Some("Linux has no LZMA".into()),
        Encoding::Zlib { .. } => vec!["CONFIG_SQUASHFS_ZLIB"],
        Encoding::Lzo { .. } => vec!["CONFIG_SQUASHFS_LZO"],
        Encoding::Lz4 { .. } => vec!["CONFIG_SQUASHFS_LZ4"],
        Encoding::Zstd { .. } => vec!["CONFIG_SQUASHFS_ZSTD"],
        Encoding::Xz { filters, .. } => filters
            .iter()
            .map(|filter| match filter {
                Bcj::X86 => "CONFIG_XZ_DEC_X86",
                Bcj::PowerPc => "CONFIG_XZ_DEC_POWERPC",
                Bcj::Ia64 => "CONFIG_XZ_DEC_IA64",
                Bcj::Arm => "CONFIG_XZ_DEC_ARM",
                Bcj::ArmThumb => "CONFIG_XZ_DEC_ARMTHUMB",
                Bcj::Sparc => "CONFIG_XZ_DEC_SPARC",
                Bcj::Arm64 => "CONFIG_XZ_DEC_ARM64",
                Bcj::RiscV => "CONFIG_XZ_DEC_RISCV",
            })
            .chain(["CONFIG_SQUASHFS_XZ"])
            .collect(),
    };
    let missing = options
        .iter()
        .find(|name| kernel_option(name) == Some(false));
    missing.map(|name| format!("it was built without {name}"))
}

/// Fails if a filter of the options never gave the shortest block: the oracles would not test that
/// filter.
fn uses_filters(image: &[u8], options: &SquashfsOptions) {
    let Encoding::Xz { filters, .. } = &options.encoding else {
        return;
    };
    // After the magic number come the header's flags and checksum, then the first block header: its
    // length, the number of filters minus one, and the first filter.
    let magic = [0xFD, b'7', b'z', b'X', b'Z', 0, 0, 1];
    let blocks = image.windows(15).filter(|bytes| bytes.starts_with(&magic));
    let found: BTreeSet<u8> = blocks.map(|bytes| bytes[14]).collect();
    for filter in filters.iter() {
        let id = match filter {
            Bcj::X86 => 4,
            Bcj::PowerPc => 5,
            Bcj::Ia64 => 6,
            Bcj::Arm => 7,
            Bcj::ArmThumb => 8,
            Bcj::Sparc => 9,
            Bcj::Arm64 => 10,
            Bcj::RiscV => 11,
        };
        assert!(found.contains(&id), "no block has {filter:?}: {found:?}");
    }
}

/// Returns an index for each codec. A new codec does not compile without one.
const fn number(encoding: &Encoding) -> usize {
    match encoding {
        Encoding::Zlib { .. } => 0,
        Encoding::Lzma => 1,
        Encoding::Lzo { .. } => 2,
        Encoding::Xz { .. } => 3,
        Encoding::Lz4 { .. } => 4,
        Encoding::Zstd { .. } => 5,
    }
}

#[test]
fn every_option_is_judged_by_the_kernel_and_by_unsquashfs() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(small);
    let order = memory_dir("squashfs-matrix-order", 1 << 30);
    let order = order.path().join("order");
    fs::write(&order, "noise 5\nx86 -3\n").unwrap();
    let rows = rows(&Priorities::from_files(&[order]).unwrap());
    let codecs: BTreeSet<usize> = rows
        .iter()
        .map(|row| number(&row.options.encoding))
        .collect();
    assert_eq!(codecs.len(), 6, "{codecs:?}");
    let lzo = "the encoder has lzo1x_999 at level 8 only";
    let table = Table {
        format: "squashfs",
        whole: &["priorities", "mkfs_time"],
        fixed: &[("encoding.Lzo.algorithm", lzo), ("encoding.Lzo.level", lzo)],
    };
    judge_all(table, &rows, |row, dir| judge(&sample, row, dir));
}
