//! Members that are longer than a block.

use forerun_testkit::{CountingSource, TreeModel, generate};
use forerun_vfs::{FileSystem, Place};
use forerun_zip::Zip;
use forerun_zip::fuzzing::maker::{Made, archive};

use crate::common::{node, open_small_blocks, source};

const LEN: usize = 300_000;

fn contents() -> Vec<u8> {
    generate::bytes(7, LEN)
}

fn made() -> Vec<u8> {
    let contents = contents();
    let member = |name, method| Made::new(name, 0o100_644, method, &contents);
    archive(&[
        member(b"deflate", 8),
        member(b"zstd", 93),
        member(b"stored", 0),
    ])
}

fn places(zip: &Zip, path: &str) -> Vec<Place> {
    let mut places = Vec::new();
    let mapped = zip.map(node(zip, path), 0..u64::MAX, &mut |extent| {
        places.push(extent.place);
        std::ops::ControlFlow::Continue(())
    });
    mapped.unwrap();
    places
}

#[test]
fn they_are_cut_into_spans_or_spooled() {
    let bytes = made();
    let zip = open_small_blocks(&bytes, true);
    let is_encoded = |place: &Place| matches!(place, Place::Encoded { .. });
    let deflate = places(&zip, "deflate");
    assert!(
        deflate.len() >= 2 && deflate.iter().all(is_encoded),
        "{deflate:?}"
    );
    let spooled = places(&zip, "zstd");
    assert!(
        matches!(spooled[..], [Place::Stored { blob, .. }] if blob != forerun_vfs::BlobId::IMAGE)
    );
    let tree = TreeModel::of_image(&zip, &*source(&bytes)).unwrap();
    let small = TreeModel::of_image(&crate::common::open(&bytes), &*source(&bytes)).unwrap();
    assert_eq!(tree.nodes, small.nodes);
}

#[test]
fn one_pass_serves_all_reads() {
    let bytes = made();
    let counting = std::sync::Arc::new(CountingSource::new(source(&bytes)));
    let mut with =
        forerun_vfs::OpenWith::new(std::sync::Arc::<CountingSource<_>>::clone(&counting));
    with.limits.block_len = 64 << 10;
    let zip = Zip::open_with(&with).unwrap();
    let opened = counting.bytes();
    places(&zip, "deflate");
    let once = counting.bytes() - opened;
    assert!(once >= LEN as u64 && once < LEN as u64 + 100_000, "{once}");
    places(&zip, "deflate");
    // Only the local header.
    assert!(counting.bytes() - opened - once < 100);
}

#[test]
fn without_a_place_for_temporary_files_they_are_refused() {
    let bytes = made();
    let zip = open_small_blocks(&bytes, false);
    let mapped = zip.map(node(&zip, "zstd"), 0..1, &mut |_| panic!("an extent"));
    assert_eq!(mapped.unwrap_err().kind(), "unsupported");
}

#[test]
fn they_are_compared_with_their_length_and_checksum() {
    let bytes = made();
    let size = bytes.len() - 22 - 3 * 46 - "deflatezstdstored".len();
    let refused = |at: usize, value: &[u8], path: &str| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        let zip = open_small_blocks(&bytes, true);
        let mapped = zip.map(node(&zip, path), 0..1, &mut |_| panic!("an extent"));
        mapped.unwrap_err().to_string()
    };
    let long = refused(size + 24, &(LEN as u32 - 1).to_le_bytes(), "deflate");
    assert!(long.contains("decodes to more than 299999 bytes"), "{long}");
    let short = refused(size + 24, &(LEN as u32 + 1).to_le_bytes(), "deflate");
    assert!(
        short.contains("decodes to 300000 bytes instead of 300001"),
        "{short}"
    );
    let other = refused(size + 16, &[1, 2, 3, 4], "deflate");
    assert!(other.contains("CRC-32"), "{other}");
    let flipped = refused(200_000, &[bytes[200_000] ^ 1], "deflate");
    assert!(flipped.contains("CRC-32"), "{flipped}");
}
