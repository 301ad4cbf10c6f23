//! The same suite, for contents and names of files.

use forerun_io::u64_from;
use forerun_vfs::{Changes, Error, FileType, Timestamp};

use super::volume::{THEN, Test, refused};
use crate::rng::Rng;

impl Test<'_> {
    pub(super) fn renames(&self) {
        let (fs, root) = (self.fs, self.fs.root());
        let (one, two) = (self.directory("one"), self.directory("two"));
        let file = self.make(one, "file", FileType::Regular);
        self.write(file, 0, b"contents");
        fs.rename(
            (one, b"file"),
            (one, b"a much longer name than before"),
            false,
        )
        .unwrap();
        fs.rename(
            (one, b"a much longer name than before"),
            (two, b"moved"),
            false,
        )
        .unwrap();
        assert_eq!(fs.lookup(two, b"moved").unwrap(), Some(file), "same id");
        assert!(self.list(one).is_empty());
        assert_eq!(self.read(file), b"contents");
        let other = self.make(two, "other", FileType::Regular);
        refused(fs.rename((two, b"moved"), (two, b"other"), false), "exists");
        fs.rename((two, b"moved"), (two, b"other"), true).unwrap();
        assert_eq!(fs.lookup(two, b"other").unwrap(), Some(file));
        refused(fs.metadata(other), "stale_node");
        refused(fs.rename((two, b"none"), (one, b"x"), true), "not_found");
        refused(
            fs.rename((two, b"other"), (root, b"one"), true),
            "is_a_directory",
        );
        refused(
            fs.rename((root, b"one"), (two, b"other"), true),
            "not_a_directory",
        );
        refused(fs.rename((root, b"one"), (root, b"two"), true), "not_empty");
        fs.rename((root, b"one"), (two, b"one"), false).unwrap();
        refused(
            fs.rename((root, b"two"), (one, b"two"), false),
            "into_itself",
        );
        refused(
            fs.rename((root, b"two"), (two, b"two"), false),
            "into_itself",
        );
        self.directory("empty");
        fs.rename((two, b"one"), (root, b"empty"), true).unwrap();
        assert_eq!(fs.lookup(root, b"empty").unwrap(), Some(one), "same id");
        fs.rename((two, b"other"), (two, b"other"), true).unwrap();
        refused(
            fs.rename((two, b"other"), (two, b"a/b"), true),
            "invalid_name",
        );
        if fs.volume().folds_case {
            fs.rename((two, b"other"), (two, b"OTHER"), false).unwrap();
            assert_eq!(self.list(two), ["OTHER"]);
        }
        fs.unlink(two, b"OTHER")
            .or_else(|_| fs.unlink(two, b"other"))
            .unwrap();
        fs.rmdir(root, b"empty").unwrap();
        fs.rmdir(root, b"two").unwrap();
    }

    /// Compares random writes and changes of length with plain bytes.
    pub(super) fn contents(&self) {
        let node = self.file("contents");
        let mut rng = Rng::new(5);
        let mut model: Vec<u8> = Vec::new();
        for step in 0..300_u32 {
            if rng.below(8) == 0 {
                let len = rng.below(200_000);
                self.resize(node, len);
                model.resize(usize::try_from(len).unwrap(), 0);
            } else {
                let offset = rng.below(150_000);
                let len = usize::try_from(1 + rng.below(70_000)).unwrap();
                let data = vec![step.to_le_bytes()[0] | 1; len];
                self.write(node, offset, &data);
                let start = usize::try_from(offset).unwrap();
                model.resize(model.len().max(start + len), 0);
                model[start..start + len].copy_from_slice(&data);
            }
            if step % 10 == 0 {
                assert!(self.read(node) == model, "contents after step {step}");
            }
        }
        assert!(self.read(node) == model, "contents at the end");
        let mut tail = [0; 10];
        assert_eq!(
            self.volume
                .read(node, u64_from(model.len()), &mut tail)
                .unwrap(),
            0
        );
        assert_eq!(self.volume.read(node, u64::MAX - 5, &mut tail).unwrap(), 0);
        self.gone("contents");
    }

    pub(super) fn gaps_read_as_zeros(&self) {
        // Bytes all over the volume that must never be seen again.
        let old = self.file("old");
        self.write(old, 0, &vec![0xEE; 1 << 20]);
        self.gone("old");
        let node = self.file("gap");
        self.write(node, 300_000, b"x");
        self.write(node, 10, b"y");
        let bytes = self.read(node);
        assert_eq!((bytes[10], bytes[300_000]), (b'y', b'x'));
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert_eq!(zeros, 300_001 - 2, "zeros in the gap");
        self.gone("gap");
        let node = self.file("grown");
        self.write(node, 0, b"abc");
        self.resize(node, 2);
        self.resize(node, 500_000);
        let bytes = self.read(node);
        assert_eq!(
            bytes[..4],
            *b"ab\0\0",
            "what was cut off does not come back"
        );
        assert!(bytes[2..].iter().all(|byte| *byte == 0));
        self.write(node, 400_000, b"z");
        let bytes = self.read(node);
        assert!(bytes[2..400_000].iter().all(|byte| *byte == 0));
        assert!(bytes[400_001..].iter().all(|byte| *byte == 0));
        self.gone("grown");
    }

    pub(super) fn lengths(&self) {
        let (fs, dir) = (self.fs, self.directory("dir"));
        let node = self.file("length");
        let times = Changes {
            modified: Some(Timestamp {
                seconds: THEN.seconds + 100,
                nanoseconds: 0,
            }),
            accessed: Some(Timestamp {
                seconds: THEN.seconds + 200,
                nanoseconds: 0,
            }),
            ..Changes::default()
        };
        let metadata = self.volume.change(node, &times).unwrap();
        assert_eq!(Some(metadata.mtime), times.modified);
        assert_eq!(Some(fs.usage(node).unwrap().accessed), times.accessed);
        let size = Changes {
            size: Some(5),
            ..Changes::default()
        };
        refused(self.volume.change(dir, &size), "is_a_directory");
        refused(self.volume.write(dir, 0, b"x", THEN), "is_a_directory");
        let absurd = self.volume.write(node, u64::MAX - 1, b"xyz", THEN);
        refused(absurd, "too_large");
        let free = self.free();
        let block = u64::from(fs.space().unwrap().block_size);
        self.write(node, 0, &vec![1; usize::try_from(2 * block).unwrap()]);
        assert_eq!(
            (free - self.free(), fs.usage(node).unwrap().allocated),
            (2, 2 * block)
        );
        assert_eq!(
            fs.metadata(node).unwrap().mtime,
            THEN,
            "a write sets the time"
        );
        self.resize(node, block);
        let accessed = fs.usage(node).unwrap().accessed;
        assert_eq!(Some(accessed), times.accessed, "only reads are accesses");
        assert_eq!(free - self.free(), 1);
        self.resize(node, 0);
        assert_eq!(self.free(), free);
        assert!(self.read(node).is_empty());
        self.gone("length");
        fs.rmdir(fs.root(), b"dir").unwrap();
    }

    pub(super) fn preallocation(&self) {
        let node = self.file("ahead");
        let free = self.free();
        let block = u64::from(self.fs.space().unwrap().block_size);
        self.write(node, 0, b"data");
        let ahead = self.volume.allocate(node, 0..3 * block, true);
        let kept = match ahead {
            Ok(()) => 3,
            // A format may be unable to store preallocation.
            Err(Error::Unsupported(_)) => 1,
            Err(error) => panic!("allocating ahead: {error}"),
        };
        assert_eq!(self.fs.metadata(node).unwrap().size, 4);
        assert_eq!(free - self.free(), kept);
        self.volume.allocate(node, 0..2 * block, false).unwrap();
        assert_eq!(self.fs.metadata(node).unwrap().size, 2 * block);
        let bytes = self.read(node);
        assert_eq!(bytes[..4], *b"data");
        assert!(bytes[4..].iter().all(|byte| *byte == 0));
        self.gone("ahead");
        assert_eq!(self.free(), free);
    }
}
