//! `dump.erofs`: describes EROFS images and files in them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use forerun::Image;
use forerun::vfs::{DirCursor, FileType, FollowLast, Held, Metadata, NodeId, resolve};
use jiff::tz::TimeZone;

use super::stats::percent;
use super::{image_args, stats, tell, tell_unopened, usage};
use crate::commands::ls::long::mode;
use crate::compat::getopt::{NotFollowed, OptNames, Takes, split};
use crate::compat::{begin, complain};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::Output;

const DONE: u8 = 0;
/// Exit statuses of errors: the numbers of the system, negative, as a byte.
const NO_FILE: u8 = 254;
const DAMAGED: u8 = 251;
const MISTAKE: u8 = 234;

/// The options.
const TABLE: &[OptNames] = &[
    ('h', "help", Takes::Nothing),
    ('V', "version", Takes::Nothing),
    ('d', "", Takes::Value),
    ('s', "", Takes::Nothing),
    ('S', "", Takes::Nothing),
    ('e', "", Takes::Nothing),
    ('\0', "device", Takes::Value),
    ('\0', "offset", Takes::Value),
    ('\0', "path", Takes::Value),
    ('\0', "nid", Takes::Value),
    ('\0', "ls", Takes::Nothing),
];

/// A file that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Path(OsString),
    Nid(u64),
}

/// A command line that can be followed.
#[derive(Debug, Default, PartialEq, Eq)]
struct DumpErofs {
    image: OsString,
    devices: Vec<OsString>,
    offset: u64,
    superblock: bool,
    stats: bool,
    extents: bool,
    wanted: Option<Wanted>,
    list: bool,
}

fn parse(name: &str, words: &[OsString]) -> std::result::Result<DumpErofs, NotFollowed> {
    let usage = |message: String| NotFollowed::Mistake(message);
    let split = split(words, TABLE).map_err(|message| usage(format!("{name}: {message}")))?;
    let mut call = DumpErofs::default();
    for given in split.options {
        let (short, long, _) = TABLE.get(given.index).copied().unwrap_or(TABLE[0]);
        let value = given.value.unwrap_or_default();
        let number = || value.to_str().and_then(|text| text.parse::<u64>().ok());
        match (short, long) {
            ('h', _) => return Err(NotFollowed::Help),
            ('V', _) => return Err(NotFollowed::Version),
            ('s', _) => call.superblock = true,
            ('S', _) => call.stats = true,
            ('e', _) => call.extents = true,
            (_, "device") => call.devices.push(value),
            (_, "offset") => match number() {
                Some(offset) => call.offset = offset,
                None => return Err(usage("<E> erofs: invalid disk offset".to_string())),
            },
            (_, "path") => call.wanted = Some(Wanted::Path(value)),
            (_, "nid") => match number() {
                Some(nid) => call.wanted = Some(Wanted::Nid(nid)),
                None => return Err(usage("<E> erofs: invalid NID".to_string())),
            },
            (_, "ls") => call.list = true,
            _ => {}
        }
    }
    let mut operands = split.operands.into_iter();
    let missing = || usage("<E> erofs: missing argument: IMAGE".to_string());
    call.image = operands.next().ok_or_else(missing)?;
    if let Some(more) = operands.next() {
        let more = more.to_string_lossy();
        return Err(usage(format!("<E> erofs: unexpected argument: {more}\n")));
    }
    Ok(call)
}

/// Runs the program. Returns the exit status.
pub fn run(name: &OsStr, words: &[OsString]) -> u8 {
    let call = match parse(&name.to_string_lossy(), words) {
        Ok(call) => call,
        Err(reason) => return usage::not_followed(reason, "dump.erofs", usage::DUMP, MISTAKE),
    };
    if (call.list || call.extents) && call.wanted.is_none() {
        return usage::complain(usage::DUMP, DONE);
    }
    let context = begin();
    let opened = context.open(&image_args(&call.image, &call.devices, call.offset));
    let described = opened.and_then(|image| describe(&call, &image));
    let Err(failure) = described else {
        return DONE;
    };
    match failure.exit {
        Exit::Source => {
            tell_unopened(&call.image, &failure);
            NO_FILE
        }
        Exit::Format => {
            tell_unopened(&call.image, &failure);
            MISTAKE
        }
        Exit::BrokenPipe => failure.exit.code(),
        _ => {
            tell(&failure);
            DAMAGED
        }
    }
}

fn describe(call: &DumpErofs, image: &Image) -> Result<()> {
    let zone = TimeZone::system();
    let mut out = Output::stdout()?;
    if call.superblock || (call.wanted.is_none() && !call.stats) {
        out.text(superblock(image, &zone)?)?;
    }
    if call.stats {
        stats::print(image, &mut out)?;
    }
    if let Some(wanted) = &call.wanted {
        let shown = match wanted {
            Wanted::Path(path) => path.to_string_lossy().into_owned(),
            Wanted::Nid(nid) => nid.to_string(),
        };
        // The program tells of a file that is not there, and returns 0.
        match file(call, image, wanted, &zone) {
            Ok(found) => {
                let (node, fields) = (found.node, found.fields.clone());
                print(&mut out, wanted, found)?;
                if call.extents {
                    stats::print_extents(image, &mut out, (shown.as_bytes(), node), &fields)?;
                }
            }
            Err(failure) if failure.exit == Exit::Image => {
                out.finish()?;
                tell(&failure);
                complain(&format!("<E> erofs: read inode failed @ {shown}"));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
    out.finish()
}

/// The fields of a structure, as the driver names them.
pub type NodeFields = HashMap<&'static str, String>;

/// Returns a field; an empty text where there is none.
pub fn text<'f>(fields: &'f NodeFields, key: &str) -> &'f str {
    fields.get(key).map_or("", String::as_str)
}

/// Parses a number, decimal or behind `0x`.
pub fn number(fields: &NodeFields, key: &str) -> u64 {
    let text = text(fields, key);
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}

/// The features by their bits: those that readers may ignore, and the others.
const COMPATIBLE: &[(u64, &str)] = &[(0x1, "sb_csum"), (0x2, "mtime")];
const INCOMPATIBLE: &[(u64, &str)] = &[
    (0x1, "0padding"),
    (0x2, "big_pcluster"),
    (0x4, "chunked_file"),
    (0x8, "device_table"),
    (0x10, "ztailpacking"),
    (0x20, "fragments"),
    (0x40, "xattr_prefixes"),
];

fn superblock(image: &Image, zone: &TimeZone) -> Result<String> {
    let fields: NodeFields = image.reader().fs().describe(None)?.into_iter().collect();
    let features = [
        (number(&fields, "feature_compat"), COMPATIBLE),
        (number(&fields, "feature_incompat"), INCOMPATIBLE),
    ];
    let features = features.into_iter().flat_map(|(bits, names)| {
        let set = names.iter().filter(move |(bit, _)| bits & bit != 0);
        set.map(|(_, name)| format!("{name} "))
    });
    let features: String = features.collect();
    let created = i64::try_from(number(&fields, "epoch")).unwrap_or(0);
    let created = jiff::Timestamp::from_second(created).map_or_else(
        |_| String::new(),
        |time| {
            let time = time.to_zoned(zone.clone());
            time.strftime("%a %b %e %H:%M:%S %Y").to_string()
        },
    );
    let rows = [
        ("magic number", "0xE0F5E1E2".to_string()),
        ("blocks", number(&fields, "blocks").to_string()),
        (
            "inode metadata start block",
            number(&fields, "meta_blkaddr").to_string(),
        ),
        (
            "shared xattr metadata start block",
            number(&fields, "xattr_blkaddr").to_string(),
        ),
        ("root nid", number(&fields, "root_nid").to_string()),
        ("inode count", number(&fields, "inos").to_string()),
        ("created", created),
        ("features", features),
        ("UUID", text(&fields, "uuid").to_string()),
    ];
    let lines = rows.map(|(what, value)| format!("{:<46}{value}\n", format!("Filesystem {what}:")));
    Ok(lines.concat())
}

/// A name of a directory, its node and kind.
type Listed = (Vec<u8>, NodeId, FileType);

/// A file that was found.
struct FoundFile {
    node: NodeId,
    fields: NodeFields,
    text: String,
    entries: Vec<Listed>,
}

/// Returns the description of a file and, if that is asked for, the names in the directory.
fn file(call: &DumpErofs, image: &Image, wanted: &Wanted, zone: &TimeZone) -> Result<FoundFile> {
    let (fs, limits) = (image.reader().fs(), image.reader().limits());
    let find = |path: &[u8]| resolve(fs, path, FollowLast::No, limits);
    let node = match wanted {
        Wanted::Path(path) => find(path.as_bytes())?,
        Wanted::Nid(nid) => NodeId(*nid),
    };
    let metadata = fs.metadata(node)?;
    let fields: NodeFields = fs.describe(Some(node))?.into_iter().collect();
    let text = attributes(node, &metadata, &fields, zone);
    let mut entries = Vec::new();
    if call.list {
        let mut held = Held::new(limits);
        let mut full = Ok(());
        entries.push((b".".to_vec(), node, FileType::Directory));
        if let Wanted::Path(path) = wanted {
            let above = [path.as_bytes(), b"/.."].concat();
            entries.push((b"..".to_vec(), find(&above)?, FileType::Directory));
        }
        fs.read_dir(node, DirCursor::START, &mut |entry| {
            full = held.add(entry.name.len());
            entries.push((entry.name.to_vec(), entry.node, entry.kind));
            match full {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        full?;
        entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    }
    Ok(FoundFile {
        node,
        fields,
        text,
        entries,
    })
}

/// Prints a file.
fn print(out: &mut Output, wanted: &Wanted, found: FoundFile) -> Result<()> {
    if let Wanted::Path(path) = wanted {
        out.text("File : ")?;
        out.name(path.as_bytes())?;
        out.text("\n")?;
    }
    out.text(found.text)?;
    if !found.entries.is_empty() {
        out.text("\n       NID TYPE  FILENAME\n")?;
    }
    for (name, node, kind) in found.entries {
        out.text(format!("{:>10} {:>4}  ", node.0, type_number(kind)))?;
        out.name(&name)?;
        out.text("\n")?;
    }
    Ok(())
}

/// Returns what the data of a file take in the image.
pub fn on_disk(size: u64, fields: &NodeFields) -> u64 {
    match fields.contains_key("compressed_blocks") {
        true => number(fields, "compressed_blocks").saturating_mul(4096),
        false => size,
    }
}

fn attributes(node: NodeId, metadata: &Metadata, fields: &NodeFields, zone: &TimeZone) -> String {
    let size = metadata.size;
    let format = text(fields, "i_format");
    let layouts = [
        "flat_plain",
        "compressed_full",
        "flat_inline",
        "compressed_compact",
        "chunk",
    ];
    let layout = layouts
        .iter()
        .position(|name| format.contains(name))
        .unwrap_or(0);
    let on_disk = on_disk(size, fields);
    let ratio = percent(on_disk, size);
    let inode = if format.contains("extended") { 64 } else { 32 };
    let kind = match metadata.kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::CharDevice => "char dev",
        FileType::BlockDevice => "block dev",
        FileType::Fifo => "FIFO file",
        FileType::Socket => "SOCK file",
        FileType::Symlink => "symlink file",
    };
    // Without set-id and sticky bits, as the program shows it.
    let bits = metadata.mode & 0o777;
    let access = mode(metadata.kind, bits);
    let access = access.get(1..).unwrap_or_default();
    let time = jiff::Timestamp::from_second(metadata.mtime.seconds).unwrap_or_default();
    let time = time
        .to_zoned(zone.clone())
        .strftime("%Y-%m-%d %H:%M:%S")
        .to_string();
    let nanoseconds = metadata.mtime.nanoseconds;
    format!(
        "Size: {size}  On-disk size: {on_disk}  {kind}\n\
         NID: {}   Links: {}   Layout: {layout}   Compression ratio: {ratio}%\n\
         Inode size: {inode}   Extent size: 0   Xattr size: {}\n\
         Uid: {}   Gid: {}  Access: {:04o}/{access}\n\
         Timestamp: {time}.{nanoseconds:09}\n",
        node.0,
        metadata.nlink,
        number(fields, "xattr_isize"),
        metadata.uid,
        metadata.gid,
        bits,
    )
}

const fn type_number(kind: FileType) -> u8 {
    match kind {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let call = parse("x", &words(&["--ls", "--path=/a", "i", "-s"]));
        let expected = DumpErofs {
            image: "i".into(),
            superblock: true,
            wanted: Some(Wanted::Path("/a".into())),
            list: true,
            ..DumpErofs::default()
        };
        assert_eq!(call, Ok(expected));
        for line in [&["--nid=x", "i"][..], &[], &["a", "b"], &["-x", "i"]] {
            let refused = parse("x", &words(line));
            assert!(matches!(refused, Err(NotFollowed::Mistake(_))), "{line:?}");
        }
        crate::compat::tests::documented("## dump.erofs", TABLE, false);
    }
}
