//! Trees from text in the format of composefs-dump(5), which the reference implementation reads and
//! writes. Both sides of a comparison start from it.

use std::collections::HashMap;

use forerun_build::{Content, NewNode, NodeIndex, NodeKind, Tree};
use forerun_composefs::Digest;
use forerun_composefs::write::{FileData, Files};
use forerun_vfs::{Device, Timestamp};

/// Parses a dump into a tree, and the places of its files' contents.
pub fn parse(text: &[u8]) -> (Tree, Files) {
    let (mut tree, mut files) = (Tree::default(), Files::default());
    let mut paths: HashMap<Vec<u8>, NodeIndex> = HashMap::new();
    let mut links = Vec::new();
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let path = unescape(fields[0]);
        if let Some(target) = hard_link(&fields) {
            links.push((path, target));
            continue;
        }
        let (node, data) = node(&fields);
        let index = if path == b"/" {
            *tree.node_mut(Tree::ROOT) = node;
            Tree::ROOT
        } else {
            let (dir, name) = split(&path);
            tree.add(paths[dir], name, node).unwrap()
        };
        if let Some(data) = data {
            files.insert(index, data);
        }
        if !matches!(tree.node(index).kind, NodeKind::Directory(_)) {
            files.set_nlink(index, number(fields[3], 10).try_into().unwrap());
        }
        paths.insert(path, index);
    }
    for (path, target) in links {
        let (dir, name) = split(&path);
        tree.link(paths[dir], name, paths[&target]).unwrap();
    }
    (tree, files)
}

fn hard_link(fields: &[&[u8]]) -> Option<Vec<u8>> {
    fields[2].starts_with(b"@").then(|| unescape(fields[8]))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|&byte| byte == b'/').unwrap();
    (&path[..slash.max(1)], &path[slash + 1..])
}

fn node(fields: &[&[u8]]) -> (NewNode, Option<FileData>) {
    let mode = u16::try_from(number(fields[2], 8)).unwrap();
    let rdev = number(fields[6], 10);
    let device = Device {
        major: u32::try_from((rdev >> 8) & 0xfff).unwrap(),
        minor: u32::try_from((rdev & 0xff) | ((rdev >> 12) & 0xf_ff00)).unwrap(),
    };
    let optional = |field: &[u8]| (field != b"-").then(|| unescape(field));
    let (payload, content, digest) = (
        optional(fields[8]),
        optional(fields[9]),
        optional(fields[10]),
    );
    let mut data = None;
    let kind = match mode & 0o170_000 {
        0o040_000 => NodeKind::Directory(std::collections::BTreeMap::new()),
        0o120_000 => NodeKind::Symlink(payload.unwrap()),
        0o060_000 => NodeKind::BlockDevice(device),
        0o020_000 => NodeKind::CharDevice(device),
        0o010_000 => NodeKind::Fifo,
        0o140_000 => NodeKind::Socket,
        _ => {
            let len = number(fields[1], 10);
            data = (len > 0).then(|| match content {
                Some(content) => FileData::Inline(content),
                None => FileData::Object {
                    path: payload,
                    digest: digest.and_then(|digest| Digest::from_hex(&digest)),
                },
            });
            let content = Content::Bytes(std::sync::Arc::default());
            NodeKind::File { len, content }
        }
    };
    let mut node = NewNode::new(kind, mode & 0o7777);
    node.uid = number(fields[4], 10).try_into().unwrap();
    node.gid = number(fields[5], 10).try_into().unwrap();
    let mut time = fields[7].split(|&byte| byte == b'.');
    node.mtime = Timestamp {
        seconds: number(time.next().unwrap(), 10).try_into().unwrap(),
        nanoseconds: number(time.next().unwrap(), 10).try_into().unwrap(),
    };
    for attribute in &fields[11..] {
        let equals = attribute.iter().position(|&byte| byte == b'=').unwrap();
        let (name, value) = (&attribute[..equals], &attribute[equals + 1..]);
        // Alone, as elsewhere, a dash would be nothing.
        node.xattrs.insert(unescape(name), unescape(value));
    }
    (node, data)
}

fn number(field: &[u8], radix: u32) -> u64 {
    u64::from_str_radix(std::str::from_utf8(field).unwrap(), radix).unwrap()
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field.iter();
    while let Some(&byte) = rest.next() {
        out.push(match byte {
            b'\\' => match rest.next().unwrap() {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                _ => {
                    let digits = [*rest.next().unwrap(), *rest.next().unwrap()];
                    number(&digits, 16).try_into().unwrap()
                }
            },
            byte => byte,
        });
    }
    out
}
