//! Changes of an exFAT volume compared with a model in memory. The volume must match the model
//! before and after it is reopened.

use std::sync::Arc;

use forerun::build::{ExfatOptions, Tree};
use forerun::vfs::{FileSystem, OpenMutWith, OpenWith};
use forerun::{MemorySource, Observer, ReadAt, Writer};
use forerun_exfat::Exfat;
use forerun_io::{BlockDevice, MemoryDevice};
use forerun_testkit::powercut::{Found, Model, Operation, Place, Recorder, run};

use super::Made;
use crate::input::{Input, random_seeds};

/// Most operations of an input.
const MOST: usize = 120;
/// Names that differ not only in case.
const NAMES: [&str; 6] = [
    "a",
    "b",
    "c.txt",
    "a name of more than fifteen units",
    "\u{e4}\u{1f600}",
    "dir",
];

pub fn seeds() -> Made {
    Ok(random_seeds(24, 400))
}

/// Runs operations on a new volume and on the model.
///
/// # Panics
/// If an answer or the tree differs from the model, or `check` finds something.
pub fn run_operations(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let options = ExfatOptions {
        cluster_size: Some(input.one_of(&[512, 1024, 4096])),
        // So small that it is sometimes full.
        free: u64::from(input.word()) * 4,
        ..ExfatOptions::default()
    };
    let mut image = Vec::new();
    let writer = Writer::Exfat(options);
    if writer
        .write(&Tree::default(), &mut image, &Arc::new(Observer::default()))
        .is_err()
    {
        return;
    }
    let device = Arc::new(Recorder::new(MemoryDevice::new(image)));
    let shared: Arc<dyn BlockDevice> = Arc::<Recorder<_>>::clone(&device);
    let mut with = OpenMutWith::new(shared);
    with.dirsync = input.flag();
    let mut model = Model::new(with.dirsync);
    let opened = Exfat::open_mut(with);
    assert!(opened.is_ok(), "{:?}", opened.err());
    let Ok(fs) = opened else { return };
    let mut operations = Vec::new();
    while !input.is_empty() && operations.len() < MOST {
        operations.push(operation(&mut input));
    }
    operations.push(Operation::SyncAll);
    let done = run(&fs, &device, &mut model, &operations);
    assert!(done.is_ok(), "{done:?} of {operations:?}");
    let count = operations.len();
    agree(&fs, &*device, &model, count);
    drop(fs);
    let image = whole(&*device);
    let opened = Exfat::open(OpenWith::new(Arc::new(MemorySource::new(&image[..]))));
    assert!(opened.is_ok(), "{:?}", opened.err());
    let Ok(fs) = opened else { return };
    agree(&fs, &MemorySource::new(image), &model, count);
    let mut problems = Vec::new();
    let checked = fs.check(None, &mut |problem| {
        problems.push(problem.error.to_string())
    });
    assert!(checked.is_ok() && problems.is_empty(), "{problems:?}");
}

fn agree(fs: &dyn FileSystem, device: &dyn ReadAt, model: &Model, count: usize) {
    let found = Found::read(fs, device);
    assert!(found.is_ok(), "{found:?}");
    if let Ok(found) = found {
        assert_eq!(model.allows(&found, count, count), Ok(()));
    }
}

fn whole(device: &dyn ReadAt) -> Vec<u8> {
    let mut image = vec![0; forerun_io::usize_from(device.len())];
    let read = device.read_exact_at(0, &mut image);
    assert!(read.is_ok(), "{read:?}");
    image
}

fn operation(input: &mut Input<'_>) -> Operation {
    let kind = input.byte();
    let at = place(input);
    match kind % 10 {
        0 | 1 => Operation::Create(at),
        2 => Operation::Mkdir(at),
        3 | 4 => Operation::Write {
            file: at,
            offset: (input.word() % 12_000).into(),
            len: u64::from(input.word() % 6000) + 1,
        },
        5 => Operation::Truncate {
            file: at,
            len: (input.word() % 20_000).into(),
        },
        6 => Operation::Rename {
            from: at,
            to: place(input),
        },
        7 => Operation::Unlink(at),
        8 => Operation::Rmdir(at),
        _ if input.flag() => Operation::Sync(at),
        _ => Operation::SyncAll,
    }
}

/// Makes a path of up to three names.
fn place(input: &mut Input<'_>) -> Place {
    let byte = usize::from(input.byte());
    let last = NAMES[byte % 6];
    let (first, second) = (NAMES[byte / 6 % 6], NAMES[byte / 36 % 6]);
    Place::from(
        &match byte % 5 {
            0 => format!("{first}/{last}"),
            1 => format!("{first}/{second}/{last}"),
            _ => last.to_string(),
        }[..],
    )
}
