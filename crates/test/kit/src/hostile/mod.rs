//! Malicious images, made from valid ones by changing bytes: for each format, the attacks that
//! filesystem code has fallen for. The facts about the formats are written down again here. No
//! driver code is used, so that a driver's mistake is not repeated.
//!
//! The valid image is made from the tree of [`populate`] with uncompressed metadata.

mod erofs;
mod exfat;
mod romfs;
mod squashfs;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::generate;

#[derive(Clone, Debug)]
pub struct Hostile {
    pub what: String,
    /// Whether `check` must detect it.
    pub must_be_found: bool,
    pub image: Vec<u8>,
}

/// Length of the file `victim`, a number that occurs nowhere else in images.
const VICTIM: u32 = 20_011;

/// Names in the root of the tree, in byte order.
const NAMES: [&str; 7] = ["linkk", "loopdir", "samea", "sameb", "v", "vi", "victim"];

/// Names to replace, and their invalid replacements: `.` and `..`, a path out of the tree and out
/// of the extraction's target, the same name twice (first a link, then a file that would be written
/// through it), a NUL.
const LIES: [(&str, &str); 8] = [
    ("v", "."),
    ("v", "/"),
    ("vi", ".."),
    ("victim", "../out"),
    ("victim", "/etc/x"),
    ("samea", "sa\0ea"),
    ("samea", "linkk"),
    ("samea", "sameb"),
];

pub fn populate(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("loopdir/deeper"))?;
    fs::write(dir.join("loopdir/deeper/leaf"), generate::bytes(2, 3000))?;
    for name in ["samea", "sameb", "v", "vi"] {
        fs::write(dir.join(name), generate::bytes(3, 700))?;
    }
    let victim = generate::bytes(1, usize::try_from(VICTIM).unwrap_or(0));
    fs::write(dir.join("victim"), victim)?;
    symlink("loopdir/deeper", dir.join("linkk"))
}

/// Returns the malicious variants of a valid image of this format.
pub fn lies(format: &str, sound: &[u8]) -> Vec<Hostile> {
    match format {
        "romfs" => romfs::lies(sound),
        "squashfs" => squashfs::lies(sound),
        "erofs" | "composefs" => erofs::lies(sound),
        "exfat" => exfat::lies(sound),
        _ => panic!("no lies of {format}"),
    }
}

#[derive(Clone)]
struct Patch {
    image: Vec<u8>,
}

impl Patch {
    fn of(image: &[u8]) -> Self {
        Self {
            image: image.to_vec(),
        }
    }

    /// Finds these bytes, and asserts that they occur once.
    #[track_caller]
    fn find(&self, wanted: &[u8]) -> usize {
        let found = self.find_all(wanted);
        assert_eq!(found.len(), 1, "{wanted:?} at {found:?}");
        found[0]
    }

    fn find_all(&self, wanted: &[u8]) -> Vec<usize> {
        let windows = self.image.windows(wanted.len()).enumerate();
        windows
            .filter(|(_, bytes)| *bytes == wanted)
            .map(|(at, _)| at)
            .collect()
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.image[at..at + N].try_into().expect("so many bytes")
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn told(self, what: impl Into<String>) -> Hostile {
        Hostile {
            what: what.into(),
            must_be_found: false,
            image: self.image,
        }
    }
}

impl Hostile {
    const fn must_be_found(mut self, found: bool) -> Self {
        self.must_be_found = found;
        self
    }
}

/// A field of a superblock: offset, bytes, name.
type Field = (usize, usize, &'static str);

/// Values that overflow sums and products, point past the end, or are negative. They are truncated
/// to the field, in little-endian order.
const ABSURD: [u64; 3] = [u64::MAX, 1 << 63 | 1 << 31 | 1 << 15 | 1 << 7, 0];

/// Creates one image for each field and absurd value. `mend` corrects checksums that would reveal
/// the change.
fn absurd(sound: &[u8], fields: &[Field], mend: impl Fn(&mut Patch)) -> Vec<Hostile> {
    let mut out = Vec::new();
    for &(at, len, name) in fields {
        for value in ABSURD {
            let mut patch = Patch::of(sound);
            patch.set(at, &value.to_le_bytes()[..len]);
            mend(&mut patch);
            out.push(patch.told(format!("{name} of {:x?}", &value.to_le_bytes()[..len])));
        }
    }
    out
}

fn index(number: impl TryInto<usize>) -> usize {
    number.try_into().ok().expect("an offset in an image")
}
