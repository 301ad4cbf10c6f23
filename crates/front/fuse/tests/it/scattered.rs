//! Compressed blocks of which a random reader wanted one page: the rest needs no further request.

use std::fs::File;
use std::os::unix::fs::FileExt;

use forerun_fuse::Operation;
use forerun_io::Counter;
use forerun_testkit::{MemFsBuilder, Piece, eventually};

use crate::common::{Place, can_mount, mount_memory};

const BLOCKS: usize = 64;
const PAGE: usize = 4096;

fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from(n / 97 * 31 % 251).unwrap())
        .collect()
}

/// Reads the page at offset `at` of each block, in random order.
fn read_pages(file: &File, expected: &[u8], block_len: usize, at: usize) {
    for n in 0..BLOCKS {
        let start = (n * 37 % BLOCKS) * block_len + at;
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, u64::try_from(start).unwrap())
            .unwrap();
        assert_eq!(page, expected[start..start + PAGE], "at {start}");
    }
}

/// Checks that later pages need no request, including blocks that end within a page.
#[test]
fn the_rest_of_a_block_is_there_after_a_page_of_it_was_read() {
    if !can_mount() {
        return;
    }
    for block_len in [128 << 10, 100_000] {
        let expected = bytes(BLOCKS * block_len);
        let mut builder = MemFsBuilder::new();
        let bytes = expected.clone();
        builder.clamp_extents(false);
        builder.file("file", [Piece::Encoded { bytes, block_len }]);
        let place = Place::new("scattered");
        let mount = mount_memory(&builder.build(), &place, "");
        let count = |operation| mount.requests().get(operation);
        let file = File::open(place.mnt().join("file")).unwrap();
        read_pages(&file, &expected, block_len, 0);
        // Nothing is stored for the first reads. A pushing thread that falls behind skips blocks.
        let mut round = 0;
        eventually("most blocks are stored", || {
            // Not in page order, which the kernel would detect as sequential.
            round += 1;
            read_pages(&file, &expected, block_len, round * 5 % 23 * PAGE);
            count(Operation::Store) >= 16
        });
        let decodes = mount.stats().get(Counter::Decodes);
        let reads = count(Operation::Read);
        read_pages(&file, &expected, block_len, 23 * PAGE);
        let more = count(Operation::Read) - reads;
        assert!(more <= 48, "{more} requests for {BLOCKS} pages");
        assert_eq!(std::fs::read(place.mnt().join("file")).unwrap(), expected);
        let all = mount.stats().get(Counter::Decodes);
        assert!(all - decodes < 20, "{decodes} decodes, then {all}");
    }
}

/// Checks that nothing is stored of a file that is uncompressed or compressed in small blocks.
#[test]
fn of_other_files_nothing_is_stored() {
    if !can_mount() {
        return;
    }
    let stride = 128 << 10;
    let expected = bytes(BLOCKS * stride);
    for block_len in [None, Some(4 * PAGE)] {
        let bytes = expected.clone();
        let piece = match block_len {
            None => Piece::Stored(bytes),
            Some(block_len) => Piece::Encoded { bytes, block_len },
        };
        let mut builder = MemFsBuilder::new();
        builder.clamp_extents(false);
        builder.file("file", [piece]);
        let place = Place::new("scattered-others");
        let mount = mount_memory(&builder.build(), &place, "");
        let file = File::open(place.mnt().join("file")).unwrap();
        for at in 1..8 {
            read_pages(&file, &expected, stride, at * 3 * PAGE);
        }
        assert_eq!(mount.requests().get(Operation::Store), 0, "{block_len:?}");
    }
}
