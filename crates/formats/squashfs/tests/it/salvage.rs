//! Truncated and damaged images of mksquashfs: what a salvage returns is compared with the tree
//! byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use forerun_io::{Limits, MemorySource, ReadAt};
use forerun_squashfs::{FORMAT, fuzzing};
use forerun_testkit::{TempDir, require, temp_dir};
use forerun_vfs::{Error, FileSystem, NodeId, OpenWith, Place, Result, Walk};

use crate::common;
use crate::writer_common::run;

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns `len` unique bytes that compress to about half.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let random = forerun_testkit::generate::bytes(seed, len.div_ceil(2));
    let digits = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| b'a' + digit).take(len).collect()
}

struct Sample {
    dir: TempDir,
    files: Files,
}

impl Sample {
    /// Creates a tree of small and large files, some of them incompressible.
    fn new() -> Option<Self> {
        require::program("mksquashfs")?;
        let dir = temp_dir("squashfs-salvage");
        let mut files = Files::new();
        for n in 0..400_u64 {
            let len = match n % 8 {
                0 => 40_000 + usize::try_from(n).unwrap() * 97,
                // After a file that ends with a full block, a guess would wrongly append the next
                // block.
                1 if n % 5 == 1 => 16384,
                _ => 200 + usize::try_from(n * 7919 % 9000).unwrap(),
            };
            let bytes = match n % 10 {
                9 => forerun_testkit::generate::bytes(n, len),
                _ => text(n, len),
            };
            files.insert(format!("dir{}/sub{}/file{n}", n % 5, n % 3).into(), bytes);
        }
        files.insert(b"empty".into(), Vec::new());
        for (path, bytes) in &files {
            let path = dir
                .path()
                .join("tree")
                .join(std::str::from_utf8(path).unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        Some(Self { dir, files })
    }

    fn image(&self, options: &[&str]) -> Vec<u8> {
        let image = self.dir.path().join("image");
        let mut command = Command::new("mksquashfs");
        command.arg(self.dir.path().join("tree")).arg(&image);
        run(command
            .args([
                "-noappend",
                "-no-progress",
                "-quiet",
                "-b",
                "16384",
                "-nopad",
            ])
            .args(options));
        fs::read(image).unwrap()
    }
}

/// Returns the start of a table from the superblock's field at `at`.
fn table(image: &[u8], at: usize) -> usize {
    let bytes: [u8; 8] = image[at..at + 8].try_into().unwrap();
    usize::try_from(u64::from_le_bytes(bytes)).unwrap()
}

const IDS: usize = 48;
const INODES: usize = 64;
const LISTINGS: usize = 72;
const FRAGMENTS: usize = 80;

fn open(image: &[u8], rescue: bool) -> Result<(Arc<dyn FileSystem>, Arc<dyn ReadAt>)> {
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(image));
    let mut with = OpenWith::new(Arc::clone(&source));
    with.rescue = rescue;
    Ok(((FORMAT.open)(with)?, source))
}

fn read(fs: &dyn FileSystem, source: &dyn ReadAt, node: NodeId) -> Result<Vec<u8>> {
    let size = fs.metadata(node)?.size;
    let mut extents = Vec::new();
    fs.map(node, 0..size, &mut |extent| {
        extents.push(extent);
        std::ops::ControlFlow::Continue(())
    })?;
    let mut out = vec![0; usize::try_from(size).unwrap()];
    for extent in extents {
        let range = usize::try_from(extent.logical.start).unwrap()
            ..usize::try_from(extent.logical.end).unwrap();
        let out = &mut out[range];
        let failed = |error| Error::io(0, 0, error);
        match extent.place {
            Place::Zero => {}
            Place::Stored { offset, .. } => source.read_exact_at(offset, out).map_err(failed)?,
            Place::Encoded { block, skip } => {
                let mut stored = vec![0; usize::try_from(block.len).unwrap()];
                source
                    .read_exact_at(block.offset, &mut stored)
                    .map_err(failed)?;
                let mut decoded = vec![0; usize::try_from(block.decoded_len.max()).unwrap()];
                let len = block.decode(&stored, &mut decoded);
                let len = len.map_err(|error| failed(std::io::Error::other(error)))?;
                let from = usize::try_from(skip).unwrap();
                let bytes = decoded[..len].get(from..from + out.len());
                out.copy_from_slice(bytes.ok_or(Error::NotFound)?);
            }
            Place::Inline(bytes) => out.copy_from_slice(&bytes),
        }
    }
    Ok(out)
}

/// Numbers of whole files found under their paths, under inode numbers, and as guesses.
#[derive(Debug, Default)]
struct Found {
    named: usize,
    numbered: usize,
    guessed: usize,
}

/// Reads all that a salvage returns. Panics on a wrong byte, except in guessed files.
fn salvage(files: &Files, image: &[u8]) -> Found {
    let (fs, source) = open(image, true).unwrap();
    let contents: BTreeSet<&[u8]> = files.values().map(Vec::as_slice).collect();
    let mut found = Found::default();
    let mut guesses = BTreeSet::new();
    for entry in Walk::new(&*fs, fs.root(), &Limits::default()) {
        let Ok(entry) = entry else { continue };
        let is_file = entry
            .metadata
            .as_ref()
            .is_ok_and(|metadata| metadata.is_file());
        let Ok(bytes) = read(&*fs, &*source, entry.node) else {
            continue;
        };
        if !is_file {
            continue;
        }
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        if fs.is_guess(entry.node) {
            assert!(path.starts_with("lost+found/"), "{path}");
            guesses.insert(bytes);
        } else if let Some(expected) = files.get(&entry.path) {
            assert!(bytes == *expected, "{path} has wrong bytes");
            found.named += 1;
        } else {
            assert!(path.starts_with("lost+found/"), "{path}");
            assert!(
                contents.contains(&bytes[..]),
                "{path} is no file of the tree"
            );
            found.numbered += 1;
        }
    }
    found.guessed = contents
        .iter()
        .filter(|&&bytes| guesses.contains(bytes))
        .count();
    eprintln!("{found:?}; {:#?}", fs.volume().warnings);
    found
}

/// Returns how many files have all their data before `cut`.
fn data_before(files: &Files, image: &[u8], cut: usize) -> usize {
    let (fs, _) = open(image, false).unwrap();
    let cut = u64::try_from(cut).unwrap();
    let mut count = 0;
    for entry in Walk::new(&*fs, fs.root(), &Limits::default()) {
        let entry = entry.unwrap();
        if !files.contains_key(&entry.path) {
            continue;
        }
        let mut is_there = true;
        fs.map(entry.node, 0..u64::MAX, &mut |extent| {
            let end = match extent.place {
                Place::Encoded { block, .. } => block.stored().end,
                Place::Stored { offset, .. } => offset + extent.logical.end - extent.logical.start,
                Place::Zero | Place::Inline(_) => 0,
            };
            is_there &= end <= cut;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        count += usize::from(is_there);
    }
    count
}

fn assert_share(found: usize, of: usize, what: &str) {
    eprintln!("{what}: {found} of {of}");
    assert!(found * 100 >= of * 85, "{what}: {found} of {of}");
}

#[test]
fn an_undamaged_image_is_what_it_is_without_a_salvage() {
    let Some(sample) = Sample::new() else { return };
    let image = sample.image(&[]);
    let found = salvage(&sample.files, &image);
    assert_eq!((found.named, found.numbered, found.guessed), (401, 0, 0));
    let (fs, _) = open(&image, true).unwrap();
    assert!(fs.volume().warnings.is_empty());
}

#[test]
fn without_the_tables_behind_the_listings_files_keep_their_names() {
    let Some(sample) = Sample::new() else { return };
    for codec in ["gzip", "zstd", "xz", "lz4", "lzo"] {
        let image = sample.image(&["-comp", codec]);
        assert!(open(&image[..table(&image, IDS) - 30], false).is_err());
        // Cut before the ids, and before the pointers of the fragment table.
        for cut in [table(&image, IDS) - 30, table(&image, FRAGMENTS)] {
            let found = salvage(&sample.files, &image[..cut]);
            assert_share(found.named, 401, codec);
        }
    }
}

#[test]
fn without_the_fragment_table_fragments_are_found_between_the_files() {
    let Some(sample) = Sample::new() else { return };
    for options in [
        &["-comp", "gzip"][..],
        &["-comp", "zstd"],
        &["-comp", "xz"],
        &["-noF"],
    ] {
        let image = sample.image(options);
        let listings = table(&image, LISTINGS);
        // The cut block holds the last listings: all inodes are readable, without names.
        let found = salvage(&sample.files, &image[..listings + 40]);
        assert_share(found.named + found.numbered, 401, options.last().unwrap());
        // Zeros in the middle of an image of full length.
        let mut zeroed = image.clone();
        zeroed[table(&image, FRAGMENTS) - 100..].fill(0);
        let found = salvage(&sample.files, &zeroed);
        assert_share(found.named, 401, "zeroed tables");
    }
}

#[test]
fn without_any_table_data_is_put_together_by_guess() {
    let Some(sample) = Sample::new() else { return };
    for codec in ["gzip", "zstd", "xz"] {
        for options in [&["-no-fragments"][..], &[]] {
            let image = sample.image(&[&["-comp", codec], options].concat());
            let cut = image.len() * 9 / 10;
            assert!(cut < table(&image, INODES));
            let found = salvage(&sample.files, &image[..cut]);
            assert_eq!((found.named, found.numbered), (0, 0));
            let there = data_before(&sample.files, &image, cut);
            eprintln!("{codec} {options:?}: {} of {there}", found.guessed);
            if !options.is_empty() {
                assert_share(found.guessed, there, codec);
            }
        }
    }
}

#[test]
fn every_cut_and_every_damaged_place_gives_right_bytes_only() {
    let Some(sample) = Sample::new() else { return };
    for codec in ["gzip", "lz4"] {
        let image = sample.image(&["-comp", codec]);
        let (inodes, len) = (table(&image, INODES), image.len());
        let step = (len - inodes) / 23;
        for cut in (inodes..len).step_by(step) {
            salvage(&sample.files, &image[..cut]);
            // LZ4 blocks have no checksum, so a changed block may decode.
            if codec == "lz4" {
                continue;
            }
            let mut zeroed = image.clone();
            zeroed[cut..len.min(cut + 200)].fill(0);
            salvage(&sample.files, &zeroed);
        }
    }
}

#[test]
fn damage_in_the_data_of_an_image_without_a_fragment_table_moves_no_fragment() {
    let Some(sample) = Sample::new() else { return };
    let image = sample.image(&[]);
    let cut = table(&image, LISTINGS) + 40;
    for at in (96..table(&image, INODES)).step_by(table(&image, INODES) / 19) {
        let mut damaged = image[..cut].to_vec();
        damaged[at..at + 3000].fill(0x55);
        let found = salvage(&sample.files, &damaged);
        assert!(found.numbered > 300, "{found:?}");
    }
}

#[test]
fn hostile_images_end_the_search() {
    // A stream header at every second byte.
    let mut image = fuzzing::seeds().unwrap().remove(0).1;
    image.truncate(96);
    image.extend(std::iter::repeat_n([0x78, 0x9C], 200_000).flatten());
    let (fs, _) = open(&image, true).unwrap();
    assert!(!fs.volume().warnings.is_empty());
    let seeds = fuzzing::seeds().unwrap().into_iter().map(|(_, seed)| seed);
    let old = ["gzip-1.0-little", "gzip-2.0-big", "gzip-3.0-little"].map(common::old);
    for seed in seeds.chain(old) {
        for cut in (0..seed.len()).step_by(7) {
            fuzzing::salvage(&seed[..cut]);
            let mut damaged = seed.clone();
            damaged[cut] ^= 0xff;
            fuzzing::salvage(&damaged);
        }
    }
}

#[test]
fn wrong_holes_are_salvaged_unless_the_inode_says_otherwise() {
    if require::program("mksquashfs").is_none() {
        return;
    }
    let dir = temp_dir("squashfs-holes");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let (start, end) = (text(1, 16384), text(2, 16384));
    let file = fs::File::create(tree.join("file")).unwrap();
    file.write_all_at(&start, 0).unwrap();
    file.write_all_at(&end, 3 * 16384).unwrap();
    let holes = fs::File::create(tree.join("holes")).unwrap();
    holes.set_len(20_000).unwrap();
    let image = dir.path().join("image");
    let mut command = Command::new("mksquashfs");
    run(command.arg(&tree).arg(&image).args([
        "-noappend",
        "-no-progress",
        "-quiet",
        "-noI",
        "-no-fragments",
        "-b",
        "16384",
    ]));
    let mut image = fs::read(image).unwrap();
    // Block sizes are the only run of zero words.
    let (inodes, listings) = (table(&image, INODES), table(&image, LISTINGS));
    let file = common::find_extended_file(&image[inodes..listings], 4 * 16384);
    for index in [1, 2] {
        let at = inodes + file + 56 + index * 4;
        assert_eq!(image[at..at + 4], [0; 4]);
        image[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    let holes = common::find_extended_file(&image[inodes..listings], 20_000);
    for index in [0, 1] {
        let at = inodes + holes + 56 + index * 4;
        image[at..at + 4].copy_from_slice(&0xfeff_ffff_u32.to_le_bytes());
    }
    let read = |image: &[u8]| {
        let mut with = OpenWith::new(Arc::new(MemorySource::new(image.to_vec())));
        with.rescue = true;
        let fs = (FORMAT.open)(with).unwrap();
        let mut holes = Vec::new();
        for name in [&b"file"[..], b"holes"] {
            let node = fs.lookup(fs.root(), name).unwrap().unwrap();
            let mapped = fs.map(node, 0..u64::MAX, &mut |extent| {
                if matches!(extent.place, Place::Zero) {
                    holes.push(extent.logical);
                }
                std::ops::ControlFlow::Continue(())
            });
            if mapped.is_err() {
                return Err(holes);
            }
        }
        Ok(holes)
    };
    let found = read(&image).unwrap();
    assert_eq!(found, [16384..32768, 32768..49152, 0..16384, 16384..20_000]);
    // A `sparse` field that contradicts the holes.
    image[inodes + file + 32] ^= 1;
    assert!(read(&image).is_err());
}
