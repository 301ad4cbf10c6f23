//! Every option of the writer, checked by Linux and fsck.erofs.
//!
//! Blocks above 4 KiB are in `large_blocks.rs`: Linux and fsck.erofs read them only on machines
//! with larger pages. `FORERUN_MATRIX=all` adds every combination of encoding, cluster size and way
//! of storing data and indexes, which takes minutes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_build::Order;
use forerun_codec::FillEncoding;
use forerun_erofs::write::{Compression, ErofsOptions, Fragments};
use forerun_testkit::everything::small;
use forerun_testkit::matrix::{Judged, Row, Sample, Table, every_combination, judge_all};
use forerun_testkit::require::kernel_option;
use forerun_testkit::{Keeps, TreeModel, temp_dir};

use crate::writer_common::{Via, add_acls, image, mounted, mounted_with, oracles, run};

const LZ4HC: FillEncoding = FillEncoding::Lz4Hc { level: 9 };
const DEFLATE: FillEncoding = FillEncoding::Deflate { level: 1 };
const ZSTD: FillEncoding = FillEncoding::Zstd {
    level: 3,
    window_log: 17,
};
const LZMA: FillEncoding = FillEncoding::MicroLzma {
    level: 0,
    dictionary: 1 << 16,
};

struct Rows(Vec<Row<ErofsOptions>>);

impl Rows {
    fn add(&mut self, name: impl Into<String>, change: impl FnOnce(&mut ErofsOptions)) {
        let mut options = ErofsOptions::default();
        change(&mut options);
        self.0.push(Row::new(name, options));
    }

    fn compressed(
        &mut self,
        name: impl Into<String>,
        encoding: FillEncoding,
        change: impl FnOnce(&mut Compression),
    ) {
        let mut compression = Compression::new(encoding);
        change(&mut compression);
        self.add(name, |to| to.compression = Some(compression));
    }

    /// Adds each codec at the limits of its options.
    fn codecs(&mut self) {
        self.compressed("lz4", FillEncoding::Lz4, |_| {});
        for level in [1, 9, 12] {
            let encoding = FillEncoding::Lz4Hc { level };
            self.compressed(format!("lz4hc level {level}"), encoding, |_| {});
        }
        for level in [1, 12] {
            let encoding = FillEncoding::Deflate { level };
            self.compressed(format!("deflate level {level}"), encoding, |_| {});
        }
        for (level, dictionary) in [(0, 4 << 10), (6, 1 << 20), (9, 8 << 20)] {
            let encoding = FillEncoding::MicroLzma { level, dictionary };
            let name = format!("lzma level {level}, dictionary {dictionary}");
            self.compressed(name, encoding, |with| with.cluster_size = 64 << 10);
        }
        for (level, window_log) in [(1, 10), (3, 17), (22, 20)] {
            let encoding = FillEncoding::Zstd { level, window_log };
            let name = format!("zstd level {level}, window {window_log}");
            self.compressed(name, encoding, |with| with.cluster_size = 16 << 10);
        }
    }

    fn layouts(&mut self) {
        for cluster_size in [8 << 10, 128 << 10, 1 << 20] {
            let name = format!("lz4hc in clusters of {cluster_size}");
            self.compressed(name, LZ4HC, |with| with.cluster_size = cluster_size);
        }
        let codecs = [
            ("lz4hc", LZ4HC),
            ("deflate", DEFLATE),
            ("zstd", ZSTD),
            ("lzma", LZMA),
        ];
        for (n, (codec, encoding)) in codecs.into_iter().enumerate() {
            let sizes = [4 << 10, 64 << 10];
            let mut add = |name: &str, at: usize, change: &dyn Fn(&mut Compression)| {
                let cluster_size = sizes[(n + at) % 2];
                let name = format!("{codec} in clusters of {cluster_size}, {name}");
                self.compressed(name, encoding.clone(), |with| {
                    with.cluster_size = cluster_size;
                    change(with);
                });
            };
            add("ends inline", 0, &|with| with.inline_tails = true);
            add("full indexes", 1, &|with| with.full_indexes = true);
            add("shared extents, ends inline", 0, &|with| {
                (with.share_extents, with.inline_tails) = (true, true);
            });
            add("ends as fragments", 1, &|with| {
                with.fragments = Fragments::Tails
            });
            add("all as fragments", 0, &|with| {
                with.fragments = Fragments::All
            });
            add("shared extents and fragments", 1, &|with| {
                (with.share_extents, with.fragments) = (true, Fragments::Tails);
            });
        }
        for block_size in [512, 1024, 2048] {
            self.add(format!("blocks of {block_size}"), |to| {
                to.block_size = block_size
            });
            self.add(format!("lz4 in blocks of {block_size}"), |to| {
                to.block_size = block_size;
                to.compression = Some(Compression::new(FillEncoding::Lz4));
            });
        }
    }

    fn every_combination(&mut self) {
        let encodings: Vec<FillEncoding> = (self.0.iter())
            .filter_map(|row| Some(row.options.compression.as_ref()?.encoding.clone()))
            .collect();
        let mut seen = BTreeSet::new();
        for encoding in encodings {
            if !seen.insert(format!("{encoding:?}")) {
                continue;
            }
            for cluster_size in [4 << 10, 16 << 10, 128 << 10, 1 << 20] {
                for (inline_tails, fragments) in [
                    (false, Fragments::None),
                    (true, Fragments::None),
                    (false, Fragments::Tails),
                    (false, Fragments::All),
                ] {
                    for (full_indexes, share_extents) in
                        [(false, false), (true, false), (false, true)]
                    {
                        let with = Compression {
                            encoding: encoding.clone(),
                            cluster_size,
                            inline_tails,
                            full_indexes,
                            share_extents,
                            fragments,
                        };
                        self.add(format!("{with:?}"), |to| to.compression = Some(with));
                    }
                }
            }
        }
    }

    fn not_compressed(&mut self, dir: &Path) {
        for chunk in [4 << 10, 64 << 10, 1 << 20] {
            self.add(format!("chunks of {chunk}"), |to| {
                to.chunk_size = Some(chunk)
            });
            let blob = File::create(dir.join(format!("blob {chunk}"))).unwrap();
            self.add(format!("chunks of {chunk} elsewhere"), |to| {
                (to.chunk_size, to.blob) = (Some(chunk), Some(Arc::new(blob)));
            });
        }
        self.add("chunks and no inline ends", |to| {
            (to.chunk_size, to.inline_tails) = (Some(4096), false);
        });
        self.add("no inline ends", |to| to.inline_tails = false);
        self.add("duplicates stored", |to| to.duplicates = false);
        self.add("no xattrs", |to| to.xattrs = false);
        for above in [0, 1000] {
            self.add(format!("xattrs shared above {above}"), |to| {
                to.share_xattrs_above = above;
            });
        }
        let prefixes = [&b"trusted.overlay."[..], b"user.o", b"security."];
        self.add("prefixes", |to| {
            to.xattr_prefixes = prefixes.map(<[u8]>::to_vec).into()
        });
        self.add("prefixes, fragments", |to| {
            to.xattr_prefixes = prefixes.map(<[u8]>::to_vec).into();
            let mut compression = Compression::new(LZ4HC);
            compression.fragments = Fragments::Tails;
            to.compression = Some(compression);
        });
        self.add("time", |to| to.mkfs_time = Some(1_600_000_000));
        self.add("time before 1970", |to| to.mkfs_time = Some(-5));
        self.add("uuid", |to| to.uuid = Some([7; 16]));
        self.add("label", |to| to.label = b"sixteen bytes ok".to_vec());
        self.add("three threads", |to| to.threads = 3);
        self.add("little memory", |to| to.memory = 1 << 20);
        self.add("order", |to| {
            let mut order = Order::default();
            order.add(b"noise".to_vec());
            order.add(b"xattrs".to_vec());
            to.order = order;
        });
    }
}

fn judge(sample: &Sample, row: &Row<ErofsOptions>, dir: &Path, blobs: &Path) -> Judged {
    let (path, options) = (dir.join("image"), &row.options);
    fs::write(&path, image(&sample.tree, options).unwrap()).unwrap();
    let mut judged = Judged::default();
    let chunk = options.chunk_size.unwrap_or(0);
    let blob = blobs.join(format!("blob {chunk}"));
    match unreadable(options) {
        Some(why) => judged.not_by("the kernel", why),
        None => {
            let mounted = match options.blob {
                Some(_) => {
                    let device = format!("device={}", blob.display());
                    mounted_with(&path, dir.join("mnt"), &device)
                }
                None => mounted(&path, dir.join("mnt"), Via::File),
            };
            sample.assert_same(&mounted.path, options.xattrs);
            judged.by("the kernel");
        }
    }
    let is_old = is_old_fsck();
    match unknown_to_old_fsck(options).filter(|_| is_old) {
        Some(why) => judged.not_by("fsck.erofs", why),
        None => {
            let extracted = dir.join("extracted");
            let mut fsck = Command::new("fsck.erofs");
            fsck.arg(format!("--extract={}", extracted.display()));
            if !is_old {
                // Without `--path`, fsck.erofs extracts the packed inode to this directory.
                fsck.arg("--path=/");
            }
            if options.blob.is_some() {
                fsck.arg(format!("--device={}", blob.display()));
            }
            run(fsck.arg(&path));
            let found = TreeModel::of_host(&extracted).unwrap();
            let keeps = Keeps::EVERYTHING.without_hard_links();
            let holes = options.chunk_size.is_none();
            extractable(sample.expected(options.xattrs), holes)
                .assert_same(&extractable(found, holes), &keeps);
            judged.by("fsck.erofs");
        }
    }
    judged
}

/// Returns what fsck.erofs 1.5 extracts: no set-id bits, no holes among chunks, no hard links and
/// no extended attributes.
fn extractable(mut model: TreeModel, holes: bool) -> TreeModel {
    let is_hole = |path: &[u8]| path.ends_with(b"hole") || path.starts_with(b"a hole");
    model.nodes.retain(|path, _| holes || !is_hole(path));
    for node in model.nodes.values_mut() {
        node.mode &= 0o777;
    }
    model
}

/// Returns why the kernel does not read an image with these options, or `None` if it does.
fn unreadable(options: &ErofsOptions) -> Option<String> {
    let option = match options.compression.as_ref()?.encoding {
        FillEncoding::Lz4 | FillEncoding::Lz4Hc { .. } => "CONFIG_EROFS_FS_ZIP",
        FillEncoding::MicroLzma { .. } => "CONFIG_EROFS_FS_ZIP_LZMA",
        FillEncoding::Deflate { .. } => "CONFIG_EROFS_FS_ZIP_DEFLATE",
        FillEncoding::Zstd { .. } => "CONFIG_EROFS_FS_ZIP_ZSTD",
    };
    (kernel_option(option) == Some(false)).then(|| format!("it was built without {option}"))
}

/// Returns whether fsck.erofs is version 1.5, as in Debian 12.
fn is_old_fsck() -> bool {
    run(Command::new("fsck.erofs").arg("-V")).contains("fsck.erofs 1.5")
}

/// Returns which of these options fsck.erofs 1.5 does not support.
fn unknown_to_old_fsck(options: &ErofsOptions) -> Option<&'static str> {
    if let Some(with) = &options.compression {
        match with.encoding {
            FillEncoding::Lz4 | FillEncoding::Lz4Hc { .. } => {}
            FillEncoding::MicroLzma { .. }
            | FillEncoding::Deflate { .. }
            | FillEncoding::Zstd { .. } => return Some("version 1.5 knows LZ4 alone"),
        }
        if with.share_extents {
            return Some("version 1.5 does not know shared extents");
        }
        if with.fragments != Fragments::None {
            return Some("version 1.5 does not know fragments");
        }
    }
    if options.block_size != 4096 {
        return Some("version 1.5 takes blocks of a page alone");
    }
    let prefixes = !options.xattr_prefixes.is_empty();
    prefixes.then_some("version 1.5 does not know prefixes of names")
}

/// Returns an index for each codec. A new codec does not compile without one.
const fn number(encoding: &FillEncoding) -> usize {
    match encoding {
        FillEncoding::Lz4 => 0,
        FillEncoding::Lz4Hc { .. } => 1,
        FillEncoding::MicroLzma { .. } => 2,
        FillEncoding::Deflate { .. } => 3,
        FillEncoding::Zstd { .. } => 4,
    }
}

#[test]
fn every_option_is_judged_by_the_kernel_and_by_fsck() {
    if !oracles() {
        return;
    }
    let blobs = temp_dir("erofs-matrix-blobs");
    let mut rows = Rows(Vec::new());
    rows.add("defaults", |_| {});
    rows.codecs();
    rows.layouts();
    rows.not_compressed(blobs.path());
    if every_combination() {
        rows.every_combination();
    }
    let encodings = rows
        .0
        .iter()
        .filter_map(|row| row.options.compression.as_ref());
    let codecs: BTreeSet<usize> = encodings.map(|with| number(&with.encoding)).collect();
    assert_eq!(codecs.len(), 5, "{codecs:?}");
    let sample = Sample::new(|dir| {
        small(dir);
        add_acls(&dir.join("xattrs"));
    });
    let table = Table {
        format: "erofs",
        whole: &["blob", "order", "label", "uuid", "xattr_prefixes"],
        fixed: &[(
            "devices",
            "the tests of the program's other names merge layers",
        )],
    };
    judge_all(table, &rows.0, |row, dir| {
        judge(&sample, row, dir, blobs.path())
    });
}
