//! Entry points for fuzz targets, and a small volume to start from. Not for users.
//!
//! They are plain functions over bytes, so that the same code runs under a fuzzer and, with mutated
//! seeds, in ordinary tests. They panic only if the driver breaks its contract.

mod parts;
mod repairing;

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{BlockDevice, MemoryDevice, MemorySource};
use forerun_vfs::{
    Changes, Error, FileSystem, FileSystemMut, FileType, NewNode, NodeId, OpenMutWith, OpenWith,
    Result, Timestamp, exercise,
};

use crate::driver::Exfat;
use crate::entry_set::EntrySet;
use crate::name;
use crate::upcase::Upcase;

pub use forerun_vfs::exercise::limits;
pub use parts::{
    CLUSTERS, DIR, FAT, HEAP, PIECES, ROOT, SECTOR, SLOTS, WHOLE, cluster, image, seal,
};
pub use repairing::mend;

/// Returns the failed check of an error as text; `None` for other errors.
#[must_use]
pub fn check_of(error: &Error) -> Option<String> {
    match error {
        Error::Corrupt(corrupt) => Some(corrupt.check().to_string()),
        _ => None,
    }
}

/// Corrects the checksums of the boot regions, opens `bytes` as an image, reads and checks every
/// node. Returns the errors and the findings of `check`.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    match Exfat::open(with) {
        Ok(fs) => exercise::all(&fs, &limits()),
        Err(error) => vec![error],
    }
}

/// Parses `bytes` as an entry set and as an up-case table.
pub fn parts(bytes: &[u8]) {
    if let Ok(set) = EntrySet::parse(bytes.to_vec()) {
        let upcase = Upcase::ascii();
        let units = set.name();
        assert!(!units.is_empty() && units.len() <= 255);
        if let Ok(visible) = set.visible_name() {
            assert_eq!(name::to_units(&visible), Some(units.clone()));
        }
        let again = EntrySet::parse(set.renamed(&units, &upcase).bytes().to_vec());
        assert!(again.is_ok_and(|again| again.name() == units));
    }
    if let Ok(upcase) = Upcase::parse(bytes) {
        assert_eq!(upcase.unit(0x7A), 0x5A);
    }
}

/// Runs the operations that `input` encodes on the image `seed`, and opens the result again.
pub fn operations(input: &[u8], seed: &[u8]) {
    let mut bytes = seed.to_vec();
    seal(&mut bytes);
    let device = Arc::new(MemoryDevice::new(bytes));
    let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&device);
    let mut with = OpenMutWith::new(shared);
    with.limits = limits();
    let flags = input.first().copied().unwrap_or(0);
    with.dirsync = flags & 1 != 0;
    with.continue_on_error = flags & 2 != 0;
    let Ok(fs) = Exfat::open_mut(with) else {
        return;
    };
    for operation in input.chunks_exact(4).take(64) {
        let _outcome = operate(&fs, operation);
    }
    let _outcome = fs.sync_all();
    let _outcome = fs.space();
    drop(fs);
    walk(&device.to_vec());
}

/// Runs one operation. The bytes give its kind, directory, name and number.
fn operate(fs: &Exfat, operation: &[u8]) -> Result<()> {
    let [what, place, which, number] = *operation else {
        return Ok(());
    };
    let dir = match place % 3 {
        0 => fs.root(),
        1 => fs.lookup(fs.root(), b"dir")?.unwrap_or(fs.root()),
        _ => NodeId(u64::from(place) * 8),
    };
    let names: [&[u8]; 6] = [
        b"pieces",
        b"dir",
        b"vendor",
        b"far away and long",
        b"whole",
        b"n",
    ];
    let long = [b'l'; 240];
    let name = names.get(usize::from(which % 7)).copied().unwrap_or(&long);
    let number = u64::from(number);
    let node = || fs.lookup(dir, name)?.ok_or(Error::NotFound);
    match what % 11 {
        0 => fs.create(dir, name, &new(FileType::Regular)).map(|_| ()),
        1 => fs.create(dir, name, &new(FileType::Directory)).map(|_| ()),
        2 => fs.unlink(dir, name),
        3 => fs.rmdir(dir, name),
        4 => {
            let to = names.get(usize::from(what % 6)).copied().unwrap_or(name);
            fs.rename((dir, name), (fs.root(), to), number % 2 == 0)
        }
        5 => {
            let changes = Changes {
                size: Some(number * 37),
                ..Changes::default()
            };
            fs.change(node()?, &changes).map(|_| ())
        }
        6 => {
            let (node, range) = (node()?, number * 29..number * 29 + 900);
            fs.map_write(node, range.clone(), &mut |_| ControlFlow::Continue(()))?;
            fs.written(node, range, Timestamp::default())
        }
        7 => {
            let node = node()?;
            fs.open(node)?;
            let removed = fs.unlink(dir, name);
            fs.release(node)?;
            removed
        }
        8 => fs.set_label(name),
        9 => {
            fs.forget(node()?);
            Ok(())
        }
        _ => fs.sync(fs.root()),
    }
}

fn new(kind: FileType) -> NewNode {
    NewNode {
        kind,
        permissions: 0o644,
        owner: (0, 0),
        time: Timestamp::default(),
    }
}
