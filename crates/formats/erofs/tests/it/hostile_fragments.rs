//! Hostile packed inodes.

use std::sync::Arc;

use forerun_codec::FillEncoding;
use forerun_erofs::fuzzing;
use forerun_erofs::write::{Compression, ErofsOptions, Fragments, write};
use forerun_io::Observer;
use forerun_testkit::trees::tree_of;
use forerun_testkit::{generate, told};

const SB: usize = 1024;
const CHECKSUM_FLAG: usize = SB + 8;
const FEATURES: usize = SB + 80;
const PACKED: usize = SB + 96;
/// Flag of the map header: the whole file is in the packed inode.
const WHOLE: u64 = 1 << 63;

/// An image with blocks of 512 bytes in which `a` is a fragment, and `b` ends with one.
struct Sample {
    image: Vec<u8>,
}

impl Sample {
    fn new() -> Self {
        let encoding = FillEncoding::Lz4;
        let options = ErofsOptions {
            block_size: 512,
            compression: Some(Compression {
                cluster_size: 512,
                full_indexes: true,
                fragments: Fragments::Tails,
                ..Compression::new(encoding)
            }),
            inline_tails: false,
            ..ErofsOptions::default()
        };
        let tree = tree_of(&[("a", &[7; 300]), ("b", &generate::bytes(1, 5000))]);
        let mut image = Vec::new();
        write(&tree, &options, &mut image, &Arc::new(Observer::default())).unwrap();
        image[CHECKSUM_FLAG] &= !1;
        Self { image }
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Vec<u8> {
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
        self.image
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.image[at..at + 8].try_into().unwrap())
    }

    fn inode(&self, nid: u64) -> usize {
        let base = u32::from_le_bytes(self.image[SB + 40..SB + 44].try_into().unwrap());
        base as usize * 512 + nid as usize * 32
    }

    fn nid(&self, inode: usize) -> u64 {
        (inode - self.inode(0)) as u64 / 32
    }

    /// Returns the offset of the inode that the root lists under `name`. The root's entries follow
    /// its inode.
    fn named(&self, name: u8) -> usize {
        let root = u16::from_le_bytes(self.image[SB + 14..SB + 16].try_into().unwrap());
        let entries = self.inode(root.into()) + 32;
        (0..4)
            .map(|n| entries + 12 * n)
            .find(|&entry| {
                let at = u16::from_le_bytes(self.image[entry + 8..entry + 10].try_into().unwrap());
                self.image[entries + usize::from(at)] == name
            })
            .map(|entry| self.inode(self.word(entry)))
            .unwrap()
    }

    fn packed(&self) -> usize {
        self.inode(self.word(PACKED))
    }
}

#[test]
fn fragments_that_lie() {
    let sample = Sample::new;
    let errors = fuzzing::walk(&sample().image);
    assert!(errors.is_empty(), "{errors:?}");
    let (a, b, packed) = (
        sample().named(b'a'),
        sample().named(b'b'),
        sample().packed(),
    );
    let header = |inode: usize| inode + 32;
    assert_eq!(sample().word(header(a)), WHOLE);
    let size = sample().word(packed + 8) & 0xffff_ffff;
    let images = vec![
        ("a packed inode that is in itself", {
            let mut image = sample().put(header(packed), &WHOLE.to_le_bytes());
            image[packed..packed + 2].copy_from_slice(&[1 << 1, 0]);
            image
        }),
        ("a packed inode that ends in itself", {
            let mut image = sample().put(header(packed) + 4, &[0x20, 0]);
            image[packed..packed + 2].copy_from_slice(&[1 << 1, 0]);
            image
        }),
        (
            "the packed inode is the file",
            sample().put(PACKED, &sample().nid(a).to_le_bytes()),
        ),
        (
            "the packed inode is the directory",
            sample().put(PACKED, &u64::from(sample().image[SB + 14]).to_le_bytes()),
        ),
        (
            "the packed inode is outside",
            sample().put(PACKED, &(1_u64 << 40).to_le_bytes()),
        ),
        ("no packed inode", sample().put(PACKED, &[0; 8])),
        ("no fragments but tails", sample().put(FEATURES, &[0x11])),
        (
            "a fragment past the end",
            sample().put(header(a), &(WHOLE | (size - 299)).to_le_bytes()),
        ),
        (
            "a fragment at the far end",
            sample().put(header(a), &u64::MAX.to_le_bytes()),
        ),
        (
            "a tail past the end",
            sample().put(header(b), &u32::MAX.to_le_bytes()),
        ),
        ("an empty packed inode", sample().put(packed + 8, &[0; 4])),
    ];
    insta::assert_snapshot!("fragments", told(images, fuzzing::walk));
}
