//! Operations on a volume, compared with the model step by step.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{BlockDevice, usize_from};
use forerun_vfs::{
    Changes, Error, FileSystemMut, FileType, NewNode, NodeId, Place as Stored, Result, Timestamp,
};

use super::operation::bytes;
use super::{Event, Model, Operation, Place, Recorder};

/// Runs the operations on the volume and the model, and records each of them. A volume may report
/// that it is full; every other answer must be that of the model.
pub fn run<D: BlockDevice>(
    fs: &dyn FileSystemMut,
    device: &Arc<Recorder<D>>,
    model: &mut Model,
    operations: &[Operation],
) -> Result<(), String> {
    for operation in operations {
        let number = model.next_operation();
        device.note(Event::Begun);
        let answer = perform(fs, &**device, operation, number);
        device.note(Event::Returned);
        let expected = model.apply(operation);
        let answer = answer.map_err(|error| (error.kind(), error.to_string()));
        match (answer, expected) {
            (Ok(()), Ok(())) => {}
            (Err(("no_space", _)), Ok(())) => model.take_back(),
            (Err((kind, _)), Err(refusal)) if kind == refusal => {}
            (answer, expected) => {
                return Err(format!("{operation:?}: {answer:?} instead of {expected:?}"));
            }
        }
    }
    Ok(())
}

/// Returns the timestamp of an operation. It depends only on the number, so that runs are equal.
fn time(number: u32) -> Timestamp {
    Timestamp {
        seconds: 1_700_000_000 + i64::from(number) * 2,
        nanoseconds: 0,
    }
}

fn perform<D: BlockDevice>(
    fs: &dyn FileSystemMut,
    device: &Recorder<D>,
    operation: &Operation,
    number: u32,
) -> Result<()> {
    let new = |kind| NewNode {
        kind,
        permissions: 0o755,
        owner: (0, 0),
        time: time(number),
    };
    match operation {
        Operation::Create(at) => {
            let (dir, name) = parent(fs, at)?;
            fs.create(dir, name, &new(FileType::Regular)).map(|_| ())
        }
        Operation::Mkdir(at) => {
            let (dir, name) = parent(fs, at)?;
            fs.create(dir, name, &new(FileType::Directory)).map(|_| ())
        }
        Operation::Write { file, offset, len } => with_open(fs, file, |node| {
            write(fs, device, node, (*offset, *len), number)
        }),
        Operation::Truncate { file, len } => with_open(fs, file, |node| {
            let changes = Changes {
                size: Some(*len),
                modified: Some(time(number)),
                ..Changes::default()
            };
            fs.change(node, &changes).map(|_| ())
        }),
        Operation::Rename { from, to } => fs.rename(parent(fs, from)?, parent(fs, to)?, true),
        Operation::Unlink(at) => {
            let (dir, name) = parent(fs, at)?;
            fs.unlink(dir, name)
        }
        Operation::Rmdir(at) => {
            let (dir, name) = parent(fs, at)?;
            fs.rmdir(dir, name)
        }
        Operation::Sync(at) => with_open(fs, at, |node| fs.sync(node)),
        Operation::SyncAll => fs.sync_all(),
    }
}

fn find(fs: &dyn FileSystemMut, at: &Place) -> Result<NodeId> {
    let mut node = fs.root();
    for name in at.names() {
        node = fs.lookup(node, name)?.ok_or(Error::NotFound)?;
    }
    Ok(node)
}

fn parent<'a>(fs: &dyn FileSystemMut, at: &'a Place) -> Result<(NodeId, &'a [u8])> {
    let (dir, name) = at.split();
    let dir = find(fs, &dir)?;
    if fs.metadata(dir)?.kind != FileType::Directory {
        return Err(Error::NotADirectory);
    }
    Ok((dir, name))
}

fn with_open(
    fs: &dyn FileSystemMut,
    at: &Place,
    act: impl FnOnce(NodeId) -> Result<()>,
) -> Result<()> {
    let node = find(fs, at)?;
    fs.open(node)?;
    let result = act(node);
    fs.release(node)?;
    result
}

fn write<D: BlockDevice>(
    fs: &dyn FileSystemMut,
    device: &Recorder<D>,
    node: NodeId,
    (offset, len): (u64, u64),
    number: u32,
) -> Result<()> {
    if fs.metadata(node)?.kind == FileType::Directory {
        return Err(Error::IsADirectory);
    }
    let mut extents = Vec::new();
    fs.map_write(node, offset..offset + len, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    let data = bytes(number, offset, len);
    for extent in extents {
        let Stored::Stored { offset: to, .. } = extent.place else {
            return Err(Error::Unsupported("a write to no place".into()));
        };
        // The bytes before the data are the gap after the bytes that were ever written.
        let (start, end) = (extent.logical.start, extent.logical.end);
        let gap = usize_from(offset.min(end).saturating_sub(start));
        let mut piece = vec![0; gap];
        let from = usize_from(start.saturating_sub(offset));
        let until = usize_from(end.saturating_sub(offset));
        piece.extend_from_slice(&data[from..until]);
        device
            .write_contents(to, &piece)
            .map_err(|error| Error::write(to, piece.len(), error))?;
    }
    fs.written(node, offset..offset + len, time(number))
}
