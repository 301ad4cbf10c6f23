//! Files read, and hashed where they may have a twin.
//!
//! Small files are read whole, several at a time by several threads, with three system calls each:
//! open, one read that asks for a byte more than there should be, close. Long ones are only passed
//! on: whoever packs them reads them part by part.

use std::collections::HashMap;
use std::io::{self, Read};

use forerun_engine::build::BuildError;
use forerun_io::{saturating_usize, u64_from};

use super::plan::{Plan, PlannedFile};

/// Files up to this are read whole.
pub const WHOLE: u64 = 1 << 20;
/// Files handed over together, and bytes of them.
const BATCH: usize = 32;
const BATCH_BYTES: u64 = 256 << 10;

/// BLAKE3, which nobody can make collide: equal hashes of equally long contents are equal contents,
/// so no byte needs to be read back to be sure.
pub type Hash = [u8; 32];

/// A file and what is to be done with it.
#[derive(Clone, Copy)]
pub struct Wanted<'t> {
    pub file: PlannedFile<'t>,
    /// Whether another file is as long.
    pub hash: bool,
}

pub struct Fetched<'t> {
    pub wanted: Wanted<'t>,
    /// All of it, and its hash; nothing for a long file.
    pub whole: Option<(Vec<u8>, Option<Hash>)>,
}

/// All files in their order, in batches.
pub fn batches<'t>(
    plan: &Plan<'t>,
    find_twins: bool,
    send: &mut dyn FnMut(Vec<Wanted<'t>>, usize) -> bool,
) {
    let mut lens: HashMap<u64, bool> = HashMap::new();
    if find_twins {
        for file in &plan.files {
            let shared = lens.entry(file.len);
            shared.and_modify(|shared| *shared = true).or_insert(false);
        }
    }
    let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
    for &file in &plan.files {
        let hash = lens.get(&file.len) == Some(&true);
        let len = if file.len > WHOLE { 0 } else { file.len };
        if batch.len() == BATCH || (bytes + len > BATCH_BYTES && !batch.is_empty()) {
            let next = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if !send(next, saturating_usize(bytes)) {
                return;
            }
            bytes = 0;
        }
        batch.push(Wanted { file, hash });
        bytes += len;
    }
    if !batch.is_empty() {
        send(batch, saturating_usize(bytes));
    }
}

/// Reads a small file.
pub fn fetch<'t>(plan: &Plan<'t>, wanted: Wanted<'t>) -> Result<Fetched<'t>, BuildError> {
    if wanted.file.len > WHOLE {
        return Ok(Fetched {
            wanted,
            whole: None,
        });
    }
    let failed = |reason| content_error(plan, &wanted.file, reason);
    let bytes = read_whole(&wanted.file).map_err(failed)?;
    let hash = wanted.hash.then(|| *blake3::hash(&bytes).as_bytes());
    Ok(Fetched {
        wanted,
        whole: Some((bytes, hash)),
    })
}

/// Why a file could not be read as the tree has it.
pub enum Unreadable {
    Io(io::Error),
    Shorter,
    Longer,
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub fn content_error(plan: &Plan<'_>, file: &PlannedFile<'_>, reason: Unreadable) -> BuildError {
    let than = format!("than the {} bytes it had when it was scanned", file.len);
    BuildError::Content {
        path: plan.file_path(file),
        reason: match reason {
            Unreadable::Io(error) => error.to_string(),
            Unreadable::Shorter => format!("the file is shorter {than}"),
            Unreadable::Longer => format!("the file is longer {than}"),
        },
    }
}

fn read_whole(file: &PlannedFile<'_>) -> Result<Vec<u8>, Unreadable> {
    let len = saturating_usize(file.len);
    let mut bytes = vec![0; len + 1];
    let mut content = file.content.open(file.len)?;
    let got = read_up_to(&mut content, &mut bytes)?;
    bytes.truncate(got);
    match got.cmp(&len) {
        std::cmp::Ordering::Equal => Ok(bytes),
        std::cmp::Ordering::Less => Err(Unreadable::Shorter),
        std::cmp::Ordering::Greater => Err(Unreadable::Longer),
    }
}

/// Reads until `out` is full or there is no more.
///
/// A read that gives less than asked but all that is expected ends it without asking once more: of a
/// regular file that is its end.
fn read_up_to(content: &mut dyn Read, out: &mut [u8]) -> io::Result<usize> {
    let expected = out.len().saturating_sub(1);
    let mut filled = 0;
    while filled < out.len() {
        match content.read(out.get_mut(filled..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if filled == expected {
            break;
        }
    }
    Ok(filled)
}

/// A long file, part by part, that must have exactly the length it had.
pub struct Stream {
    content: Box<dyn Read + Send>,
    left: u64,
}

impl Stream {
    pub fn open(file: &PlannedFile<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            content: file.content.open(file.len)?,
            left: file.len,
        })
    }

    /// The next bytes: `len` of them, or all that are left.
    pub fn read(&mut self, len: u64) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = vec![0; saturating_usize(len.min(self.left))];
        match self.content.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Unreadable::Shorter);
            }
            Err(error) => return Err(error.into()),
        }
        self.left = self.left.saturating_sub(u64_from(bytes.len()));
        if self.left == 0 && read_up_to(&mut self.content, &mut [0; 1])? > 0 {
            return Err(Unreadable::Longer);
        }
        Ok(bytes)
    }

    pub const fn left(&self) -> u64 {
        self.left
    }
}
