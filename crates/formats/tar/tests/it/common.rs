//! Archives made by hand, block by block.

use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_tar::Tar;
use forerun_testkit::conformance::check_filesystem;
use forerun_vfs::{FollowLast, NodeId, resolve};

/// Creates a member: header and padded data.
pub fn member(kind: u8, name: &[u8], link: &[u8], data: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, b"0000640\0");
    put(108, b"0000001\0");
    put(116, b"0000002\0");
    put(124, format!("{:011o}\0", data.len()).as_bytes());
    put(136, b"00000000144\0");
    put(156, &[kind]);
    put(157, link);
    put(257, b"ustar\x0000");
    sum(&mut block);
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Sets the checksum of the header at the start.
pub fn sum(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block[..512].iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len += 1;
    }
    let head = format!("{len} {key}=");
    [head.as_bytes(), value, b"\n"].concat()
}

pub fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.extend([0; 1024]);
    bytes
}

pub fn open(bytes: &[u8]) -> Tar {
    let fs = Tar::open(Arc::new(MemorySource::new(bytes)), &Limits::default()).unwrap();
    check_filesystem(&fs, &Limits::default());
    fs
}

pub fn node(fs: &Tar, path: &str) -> Option<NodeId> {
    resolve(fs, path.as_bytes(), FollowLast::No, &Limits::default()).ok()
}
