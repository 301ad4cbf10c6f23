//! Chunk tables equal those of `fsverity`, and a damaged table is never trusted.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Arc;

use forerun_cache::{CacheError, ChunkTable, Digest, Geometry, TableBuilder, VerifiedTable};
use forerun_io::{MemorySource, ReadAt, u64_from};
use forerun_testkit::{CountingSource, FaultSource, children, require, temp_dir};

use crate::common::{image, table, verified};

/// A chunk size with 32 digests in a hash block.
const SMALL: u32 = 1024;

fn of_bytes(table: &[u8], geometry: Geometry, root: Digest) -> VerifiedTable {
    let source = Arc::new(MemorySource::new(table));
    VerifiedTable::new(source, geometry, root).unwrap()
}

fn parts(bytes: &[u8], chunk: u32) -> (Vec<u8>, Geometry, Digest) {
    let table = table(bytes, chunk);
    let (geometry, root) = (table.geometry(), table.root());
    (table.into_bytes(), geometry, root)
}

/// Returns lengths around chunks, hash blocks and levels.
fn lengths(chunk: usize) -> Vec<usize> {
    let full = chunk * chunk / 32;
    let mut lens = vec![0, 1];
    for border in [chunk, 2 * chunk, full, full + chunk] {
        lens.extend([border - 1, border, border + 1]);
    }
    lens
}

#[test]
fn roots_are_those_of_fsverity() {
    // From `fsverity digest --block-size=` with 1 KiB, 4 KiB and 64 KiB. The kernel's tests have
    // the digest of the empty file with 4 KiB.
    let cases: [(&[u8], usize, [&str; 3]); 6] = [
        (
            b"",
            0,
            [
                "f2cca36b9b1b7f07814e4284b10121809133e7cb9c4528c8f6846e85fc624ffa",
                "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95",
                "37a711c20e34543da6c1507ccc4e04258a1725cc672518b1c6d5d03104fb9e95",
            ],
        ),
        (
            b"\0",
            1,
            [
                "564b7eb7ffda106d78a6b4aa080769012ec9a79ad64e0bff064211de3640fd52",
                "b803429503d95915829b29fdbc8bbad142f3abfd11b1cadf5526582e685c0551",
                "2bf8e70e6026186d0dea582792c253f8b1c6e23f578903c680c46ad8d251b556",
            ],
        ),
        (
            b"\0",
            4096,
            [
                "ea08590a4fe9c3d6c9dafe0eedacd9dffff8f24e24f1865ee3af132a495ab087",
                "babc284ee4ffe7f449377fbf6692715b43aec7bc39c094a95878904d34bac97e",
                "cb63e775bb2ad4e3cd973189646dad6b6c21769f0c8d30ff4184cc79fae36be5",
            ],
        ),
        (
            b"\0",
            4097,
            [
                "a99ae130b4286b603db26f9d6b9b84cfa43eeacada78b0da7c1c5d91c768e24c",
                "093756e4ea9683329106d4a16982682ed182c14bf076463a9e7f97305cbac743",
                "9145138b8ad1c37006882fc31ea6426c090c5c4e8abe95f96e1f47dcc6a81aeb",
            ],
        ),
        (
            b"\0",
            65536,
            [
                "527496288d703686e31092f5cca7e1306b2467f00b247ad01056ee5ec35a4bb9",
                "011e3f2b1dc89b75d78cddcc2a1b85cd8a64b2883e5f20f277ae4c0617e0404f",
                "71cdf6d189f58ccdfbcb80bc748380e899e22b712203ca72ee2720ad50ddc834",
            ],
        ),
        (
            b"a",
            1_000_000,
            [
                "75f071fc83bd60f36d89adf90fa40a22e6bdee47befb618de60d55660c8daca8",
                "50049eeefec9385017816e55c0783638f225a3938338cbd673ce9ee8bc977100",
                "26ac6864e74f3c78591622731d080c156ce1c47651df2ad5b60cb8b74efa998f",
            ],
        ),
    ];
    for (byte, len, roots) in cases {
        for (chunk, root) in [1024, 4096, 65536].into_iter().zip(roots) {
            assert_eq!(
                table(&byte.repeat(len), chunk).root().hex(),
                root,
                "{len} {chunk}"
            );
        }
    }
}

#[test]
fn tables_are_the_trees_of_fsverity() {
    let Some(fsverity) = require::program("fsverity") else {
        return;
    };
    let dir = temp_dir("fsverity");
    let (file, tree) = (dir.path().join("file"), dir.path().join("tree"));
    for chunk in [1024, 4096, 65536] {
        for len in lengths(chunk.min(4096)) {
            let bytes = image(u64_from(len), len);
            fs::write(&file, &bytes).unwrap();
            let mut command = Command::new(&fsverity);
            command
                .args(["digest", "--compact", "--out-merkle-tree"])
                .arg(&tree)
                .arg(format!("--block-size={chunk}"))
                .arg(&file);
            let output = children::output(&mut command).unwrap();
            assert!(output.status.success(), "{output:?}");
            let ours = table(&bytes, u32::try_from(chunk).unwrap());
            let root = String::from_utf8(output.stdout).unwrap();
            assert_eq!(ours.root().hex(), root.trim(), "{len} {chunk}");
            let theirs = fs::read(&tree).unwrap();
            if ours.geometry().chunks() > 1 {
                assert!(ours.bytes() == theirs, "{len} {chunk}");
            } else {
                assert_eq!(theirs, b"", "{len} {chunk}");
            }
        }
    }
}

#[test]
fn pieces_of_any_length_make_the_same_table() {
    for len in lengths(1024) {
        let bytes = image(3, len);
        let whole = table(&bytes, SMALL);
        assert_eq!(u64_from(whole.bytes().len()), whole.geometry().table_len());
        for piece in [1, 700, 1024, 1025, 5000] {
            let mut builder = TableBuilder::new(SMALL).unwrap();
            bytes
                .chunks(piece)
                .for_each(|piece| builder.push(piece).unwrap());
            assert_eq!(builder.finish().unwrap(), whole, "{len} {piece}");
        }
    }
    assert!(TableBuilder::new(1000).is_err());
}

#[test]
fn every_chunk_is_known_and_no_other() {
    for len in lengths(1024) {
        let bytes = image(4, len);
        let whole = table(&bytes, SMALL);
        let verified = verified(&bytes, SMALL);
        assert_eq!(verified.root(), whole.root());
        for (at, (chunk, digest)) in bytes.chunks(1024).zip(whole.chunk_digests()).enumerate() {
            let at = u64_from(at);
            assert_eq!(verified.digest(at).unwrap(), *digest);
            verified.verify(at, chunk).unwrap();
            let mut wrong = chunk.to_vec();
            wrong[chunk.len() / 2] ^= 1;
            match verified.verify(at, &wrong) {
                Err(CacheError::WrongDigest {
                    chunk, expected, ..
                }) => {
                    assert_eq!((chunk, expected), (at, *digest));
                }
                other => panic!("{other:?}"),
            }
        }
        let behind = verified.digest(whole.geometry().chunks()).unwrap_err();
        assert_eq!(behind.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_bit_flipped_at_any_level_is_found_by_readers_of_the_block() {
    // Levels of 1, 2 and 33 blocks.
    let bytes = image(5, 1025 * 1024);
    let (good, geometry, root) = parts(&bytes, SMALL);
    assert_eq!(good.len(), 36 * 1024);
    for block in 0..36 {
        let mut bad = good.clone();
        bad[block * 1024 + (block * 37) % 1024] ^= 0x10;
        let table = of_bytes(&bad, geometry, root);
        let needs = |chunk: usize| match block {
            0 => true,
            1 | 2 => chunk / 1024 == block - 1,
            _ => chunk / 32 == block - 3,
        };
        for chunk in (0..1025).step_by(16).chain([31, 32, 1023, 1024]) {
            match table.digest(u64_from(chunk)) {
                Ok(_) => assert!(!needs(chunk), "block {block}, chunk {chunk}"),
                Err(error) => {
                    assert!(needs(chunk), "block {block}, chunk {chunk}: {error}");
                    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                    assert!(
                        error
                            .to_string()
                            .contains(&format!("offset {}", block * 1024)),
                        "{error}"
                    );
                }
            }
        }
    }
    let (only, geometry, root) = parts(&bytes[..500], SMALL);
    for byte in 0..32 {
        let mut bad = only.clone();
        bad[byte] ^= 1;
        assert!(of_bytes(&bad, geometry, root).digest(0).is_err());
    }
}

#[test]
fn tables_of_another_image_length_or_root_are_refused() {
    let bytes = image(6, 100 * 1024);
    let (good, geometry, root) = parts(&bytes, SMALL);
    for len in [0, 1, good.len() - 1, good.len() + 1] {
        let mut other = good.clone();
        other.resize(len, 0);
        let source = Arc::new(MemorySource::new(other));
        let refused = VerifiedTable::new(source, geometry, root).unwrap_err();
        assert!(
            matches!(refused, CacheError::TableLength { .. }),
            "{refused}"
        );
    }
    // The length is part of the digest: the same tree with another length is another image.
    let shorter = Geometry::new(100 * 1024 - 1, SMALL).unwrap();
    assert!(of_bytes(&good, shorter, root).digest(0).is_err());
    assert!(
        of_bytes(&good, geometry, Digest([0; 32]))
            .digest(0)
            .is_err()
    );
}

#[test]
fn mutated_tables_never_give_a_wrong_digest() {
    let bytes = image(7, 70 * 1024);
    let (good, geometry, root) = parts(&bytes, SMALL);
    let right = table(&bytes, SMALL);
    forerun_testkit::mutate::each(&good, 2000, |mutated| {
        let source = Arc::new(MemorySource::new(mutated));
        let Ok(table) = VerifiedTable::new(source, geometry, root) else {
            assert_ne!(mutated.len(), good.len());
            return;
        };
        for (chunk, digest) in (0..).zip(right.chunk_digests()) {
            assert!(table.digest(chunk).is_ok_and(|found| found == *digest) || mutated != good);
            if let Ok(found) = table.digest(chunk) {
                assert_eq!(found, *digest);
            }
        }
    });
}

#[test]
fn blocks_are_read_when_they_are_needed_and_once() {
    let bytes = image(8, 1025 * 1024);
    let (good, geometry, root) = parts(&bytes, SMALL);
    let source = CountingSource::new(MemorySource::new(good));
    let table = VerifiedTable::new(Arc::new(source.clone()), geometry, root).unwrap();
    assert_eq!(source.reads(), 0);
    table.digest(0).unwrap();
    assert_eq!(source.take_log(), [0..1024, 1024..2048, 3072..4096]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..64).for_each(|chunk| _ = table.digest(chunk).unwrap()));
        }
    });
    assert_eq!(source.take_log(), [4096..5120]);
}

#[test]
fn a_read_that_fails_is_tried_again() {
    let bytes = image(9, 100 * 1024);
    let (good, geometry, root) = parts(&bytes, SMALL);
    for nth in 0..2 {
        let source = Arc::new(FaultSource::fail_nth(MemorySource::new(&*good), nth));
        let table = VerifiedTable::new(source, geometry, root).unwrap();
        assert_eq!(table.digest(50).unwrap_err().raw_os_error(), Some(5));
        table.verify(50, &bytes[50 * 1024..51 * 1024]).unwrap();
    }
}

/// A source whose reads all fail.
struct Gone(u64);

impl ReadAt for Gone {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
}

#[test]
fn what_was_verified_is_kept_and_verified_again() {
    let dir = temp_dir("table");
    let path = dir.path().join("table");
    let open = || {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap()
    };
    let bytes = image(10, 100 * 1024);
    let (good, geometry, root) = parts(&bytes, SMALL);
    let with = |source: Arc<dyn ReadAt>| {
        let table = VerifiedTable::new(source, geometry, root).unwrap();
        table.keep_in(open());
        table
    };
    let len = u64_from(good.len());
    assert!(with(Arc::new(Gone(len))).digest(40).is_err());
    with(Arc::new(MemorySource::new(&*good)))
        .digest(40)
        .unwrap();
    let offline = with(Arc::new(Gone(len)));
    offline.verify(40, &bytes[40 * 1024..41 * 1024]).unwrap();
    assert_eq!(
        offline.digest(70).unwrap_err().kind(),
        io::ErrorKind::NotConnected
    );
    for at in 0..fs::metadata(&path).unwrap().len() as usize / 64 {
        let mut kept = fs::read(&path).unwrap();
        kept[at * 64] ^= 1;
        fs::write(&path, &kept).unwrap();
        // A block damaged in the local file is read from the source, and the file is repaired.
        let expected = ChunkTable::of_source(&MemorySource::new(&*bytes), SMALL).unwrap();
        let table = with(Arc::new(MemorySource::new(&*good)));
        assert_eq!(table.digest(40).unwrap(), expected.chunk_digests()[40]);
    }
    assert!(with(Arc::new(Gone(len))).digest(40).is_ok());
}

#[test]
fn a_source_that_fails_makes_no_table() {
    let bytes = image(11, 9 << 20);
    let bad = FaultSource::bad_range(MemorySource::new(bytes), 8 << 20..(8 << 20) + 1);
    let error = ChunkTable::of_source(&bad, SMALL).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
}
