//! Constructs archives block by block.

use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_tar::Tar;
use forerun_testkit::conformance::check_filesystem;
use forerun_vfs::{FileSystem, FollowLast, NodeId, resolve};

/// Returns a member: header and padded data.
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

/// Corrects the checksum of the header at the start.
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

/// Returns the extended attributes of a file, by name.
pub fn xattrs(fs: &Tar, path: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = &mut |name: &[u8], value: &[u8]| found.push((name.to_vec(), value.to_vec()));
    fs.xattrs(node(fs, path).unwrap(), visit).unwrap();
    found.sort();
    found
}

/// Returns the records and the data of a sparse file (GNU 1.0).
pub fn sparse(size: &[u8], map: &[u8], data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let records = [
        record("GNU.sparse.major", b"1"),
        record("GNU.sparse.minor", b"0"),
        record("GNU.sparse.realsize", size),
    ];
    let mut bytes = map.to_vec();
    bytes.resize(512, 0);
    bytes.extend(data);
    (records.concat(), bytes)
}

pub fn everything() -> Vec<Vec<u8>> {
    let mut device = member(b'3', b"dir/char", b"", b"");
    device[329..345].copy_from_slice(b"0000005\x000000001\0");
    sum(&mut device);
    // On Linux, symbolic links have all permission bits.
    let mut symbolic = member(b'2', b"dir/symbolic", b"file", b"");
    symbolic[100..108].copy_from_slice(b"0000777\0");
    sum(&mut symbolic);
    let long = [&b"dir/"[..], &[b'n'; 150]].concat();
    let (records, map) = sparse(b"70000", b"2\n4096\n3\n65536\n5\n", b"abcdefgh");
    let sparse = [record("GNU.sparse.name", b"dir/holes"), records];
    let attributes = [
        record("path", b"dir/attributes"),
        record("mtime", b"1700000000.25"),
        record("uid", b"3000000"),
        record("SCHILY.xattr.user.a", b"1"),
    ];
    vec![
        member(b'5', b"dir/", b"", b""),
        member(b'0', b"dir/file", b"", b"contents"),
        member(b'1', b"dir/hard", b"dir/file", b""),
        symbolic,
        device,
        member(b'6', b"dir/fifo", b"", b""),
        member(b'0', b"implied/deeper/file", b"", &[7; 1000]),
        member(b'L', b"././@LongLink", b"", &long),
        member(b'0', b"short", b"", b"long name"),
        member(b'x', b"x", b"", &sparse.concat()),
        member(b'0', b"substitute", b"", &map),
        member(b'x', b"x", b"", &attributes.concat()),
        member(b'0', b"substitute", b"", b""),
    ]
}
