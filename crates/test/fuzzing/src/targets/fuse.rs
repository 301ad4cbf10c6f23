//! Kernel requests to a mount, without a kernel, and messages between the processes of a mount.

use std::sync::Arc;

use forerun::build::{Content, NewNode, NodeKind, SquashfsOptions, Tree};
use forerun::unstable::{VolumeMut, WriteOptions};
use forerun::{EngineOptions, Image, MemorySource, Observer, OpenOptions, Writer};
use forerun_exfat::fuzzing as exfat;
use forerun_fuse::fuzzing;
use forerun_io::MemoryDevice;

use super::{Made, named};

pub use fuzzing::{messages, state};

/// Prefixes of `rename`, `mknod` and other requests, by fuse(4), and the data after a name.
const NAMES: [&[u8]; 3] = [b"dir\0", b"pieces\0new\0", b"n\0"];

/// Sends requests to an image.
///
/// # Panics
/// If a request gets an answer that the kernel would reject.
pub fn image(bytes: &[u8]) {
    let options = options("squashfs");
    if let Ok(image) = Image::from_source(Arc::new(MemorySource::new(sample())), &options) {
        fuzzing::image(image.reader().clone(), bytes);
    }
}

/// Sends requests to a volume, which must be valid afterwards.
///
/// # Panics
/// Like [`image`], and if `check` finds something.
pub fn volume(bytes: &[u8]) {
    let device = Arc::new(MemoryDevice::new(exfat::image()));
    let shared = Arc::<MemoryDevice>::clone(&device);
    let opened = VolumeMut::from_device(shared, &options("exfat"), &WriteOptions::default());
    let Ok(opened) = opened else { return };
    let volume = Arc::clone(opened.volume());
    fuzzing::volume(Arc::clone(&volume), bytes);
    let synced = volume.fs().sync_all();
    assert!(synced.is_ok(), "{synced:?}");
    drop((volume, opened));
    let errors = exfat::walk(&device.to_vec());
    assert!(errors.is_empty(), "{errors:?}");
}

pub fn state_seeds() -> Made {
    Ok(named(
        ["died", "left"].into_iter().zip(fuzzing::state_seeds()),
    ))
}

fn options(format: &str) -> OpenOptions {
    OpenOptions {
        format: Some(format.to_string()),
        engine: EngineOptions {
            threads: 1,
            cache: 1 << 20,
            ..EngineOptions::default()
        },
        ..OpenOptions::default()
    }
}

fn sample() -> Vec<u8> {
    let mut tree = Tree::default();
    let file = |len: usize| NodeKind::File {
        len: forerun_io::u64_from(len),
        content: Content::Bytes(vec![7; len].into()),
    };
    let mut node = NewNode::new(file(9000), 0o644);
    node.xattrs.insert(b"user.a".to_vec(), vec![1; 30]);
    let added = [
        tree.add(Tree::ROOT, b"dir", NewNode::directory()),
        tree.add(Tree::ROOT, b"pieces", node),
        tree.add(
            Tree::ROOT,
            b"n",
            NewNode::new(NodeKind::Symlink(b"dir".to_vec()), 0o777),
        ),
    ];
    assert!(added.iter().all(Result::is_ok));
    let mut image = Vec::new();
    let writer = Writer::Squashfs(SquashfsOptions {
        threads: 1,
        ..SquashfsOptions::default()
    });
    let written = writer.write(&tree, &mut image, &Arc::new(Observer::default()));
    assert!(written.is_ok(), "{written:?}");
    image
}

/// Builds every request with arguments of a valid length, after a LOOKUP.
pub fn request_seeds() -> Made {
    let mut seeds = Vec::new();
    for opcode in 1..=52_u8 {
        let mut requests = vec![opcode % 4];
        for (lookup, name) in (0_u8..).zip(NAMES) {
            request(
                &mut requests,
                1,
                0,
                &name[..=name.iter().position(|&b| b == 0).unwrap_or(0)],
            );
            for len in [0, 4, 8, 16, 24, 32, 40, 48, 88, 128] {
                let numbers = (0..len).map(|at| if at % 8 == 0 { opcode ^ at } else { 0 });
                let arguments: Vec<u8> = numbers.chain(name.iter().copied()).collect();
                request(&mut requests, opcode, lookup + len % 3, &arguments);
            }
        }
        seeds.push((format!("request-{opcode}"), requests));
    }
    Ok(seeds)
}

fn request(requests: &mut Vec<u8>, opcode: u8, node: u8, arguments: &[u8]) {
    let [low, high, ..] = arguments.len().to_le_bytes();
    requests.extend_from_slice(&[opcode, node, low, high]);
    requests.extend_from_slice(arguments);
}

pub fn message_seeds() -> Made {
    let seeds = (0..).zip(fuzzing::message_seeds());
    Ok(named(seeds.map(|(number, seed): (u8, _)| {
        (format!("message-{number}"), seed)
    })))
}
