use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use forerun::Image;
use forerun::unstable::erofs::{Erofs, InodeFacts};
use forerun::vfs::{DirCursor, FileType, FollowLast, Held, Metadata, NodeId, resolve};
use jiff::tz::TimeZone;

use super::stats::percent;
use super::{image_args, image_operand, stats, tell, tell_unopened, usage};
use crate::columns::mode;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::options::Effect::{Help, Set, Value, Version};
use crate::options::{Manual, Opt, Parsed, Refusal, getopt, options};
use crate::output::Output;
use crate::{begin, complain};

const DONE: u8 = 0;
/// Exit statuses of errors: the negative `errno` as a byte.
const NO_FILE: u8 = 254;
const DAMAGED: u8 = 251;
const MISTAKE: u8 = 234;

const MANUAL: Manual<'_> = Manual {
    version: "dump.erofs 1.8",
    usage: usage::DUMP,
    mistake: MISTAKE,
};

pub const TABLE: &[Opt<DumpErofs>] = options! {
    "-h" | "--help" => Help;
    "-V" | "--version" => Version;
    "-d" => Value("", |_, _| Ok(()));
    "-s" => Set(|call| call.superblock = true);
    "-S" => Set(|call| call.stats = true);
    "-e" => Set(|call| call.extents = true);
    "--device" => Value("", |call, value| value.push(&mut call.devices));
    "--offset" => Value("<E> erofs: invalid disk offset", |call, value| {
        call.offset = value.number()?;
        Ok(())
    });
    "--path" => Value("", |call, value| {
        call.wanted = Some(Wanted::Path(value.given.into()));
        Ok(())
    });
    "--nid" => Value("<E> erofs: invalid NID", |call, value| {
        call.wanted = Some(Wanted::Nid(value.number()?));
        Ok(())
    });
    "--ls" => Set(|call| call.list = true);
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Path(OsString),
    Nid(u64),
}

/// A valid command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DumpErofs {
    image: OsString,
    devices: Vec<OsString>,
    offset: u64,
    superblock: bool,
    stats: bool,
    extents: bool,
    wanted: Option<Wanted>,
    list: bool,
}

fn parse(name: &str, words: &[OsString]) -> Parsed<DumpErofs> {
    let mut call = DumpErofs::default();
    let operands = getopt(name, TABLE, words, &mut call)?;
    call.image = image_operand(operands, "\n")?;
    Ok(call)
}

pub fn run(name: &OsStr, words: &[OsString]) -> u8 {
    let call = match parse(&name.to_string_lossy(), words) {
        Ok(call) => call,
        Err(refusal) => return MANUAL.answer(refusal),
    };
    if (call.list || call.extents) && call.wanted.is_none() {
        MANUAL.answer(Refusal::Usage(String::new()));
        return DONE;
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
        // Like the original, reports a missing file and returns 0.
        match file(call, image, wanted, &zone) {
            Ok(found) => {
                let node = found.node;
                print(&mut out, wanted, found)?;
                if call.extents {
                    stats::print_extents(image, &mut out, (shown.as_bytes(), node))?;
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

/// Returns the EROFS driver of an image.
pub fn driver(image: &Image) -> Result<&Erofs> {
    let missing = || Failure::usage("the image was opened as another format");
    image.driver().ok_or_else(missing)
}

/// Feature bits with their names: those that readers may ignore, and the others.
const COMPATIBLE: &[(u32, &str)] = &[(0x1, "sb_csum"), (0x2, "mtime")];
const INCOMPATIBLE: &[(u32, &str)] = &[
    (0x1, "0padding"),
    (0x2, "big_pcluster"),
    (0x4, "chunked_file"),
    (0x8, "device_table"),
    (0x10, "ztailpacking"),
    (0x20, "fragments"),
    (0x40, "xattr_prefixes"),
];

fn superblock(image: &Image, zone: &TimeZone) -> Result<String> {
    let facts = driver(image)?.superblock();
    let features = [
        (facts.feature_compat, COMPATIBLE),
        (facts.feature_incompat, INCOMPATIBLE),
    ];
    let features = features.into_iter().flat_map(|(bits, names)| {
        let set = names.iter().filter(move |(bit, _)| bits & bit != 0);
        set.map(|(_, name)| format!("{name} "))
    });
    let features: String = features.collect();
    let created = jiff::Timestamp::from_second(facts.epoch).map_or_else(
        |_| String::new(),
        |time| {
            let time = time.to_zoned(zone.clone());
            time.strftime("%a %b %e %H:%M:%S %Y").to_string()
        },
    );
    let rows = [
        ("magic number", "0xE0F5E1E2".to_string()),
        ("blocks", facts.blocks.to_string()),
        ("inode metadata start block", facts.meta_blkaddr.to_string()),
        (
            "shared xattr metadata start block",
            facts.xattr_blkaddr.to_string(),
        ),
        ("root nid", facts.root_nid.to_string()),
        ("inode count", facts.inos.to_string()),
        ("created", created),
        ("features", features),
        ("UUID", uuid(&facts.uuid)),
    ];
    let lines = rows.map(|(what, value)| format!("{:<46}{value}\n", format!("Filesystem {what}:")));
    Ok(lines.concat())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

type Listed = (Vec<u8>, NodeId, FileType);

struct FoundFile {
    node: NodeId,
    text: String,
    entries: Vec<Listed>,
}

/// Returns the description of a file and, if requested, the names in the directory.
fn file(call: &DumpErofs, image: &Image, wanted: &Wanted, zone: &TimeZone) -> Result<FoundFile> {
    let (fs, limits) = (image.reader().fs(), image.reader().limits());
    let find = |path: &[u8]| resolve(fs, path, FollowLast::No, limits);
    let node = match wanted {
        Wanted::Path(path) => find(path.as_bytes())?,
        Wanted::Nid(nid) => NodeId(*nid),
    };
    let metadata = fs.metadata(node)?;
    let text = attributes(image, node, &metadata, zone)?;
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
        text,
        entries,
    })
}

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

/// Returns the number of image bytes that the data of a file occupies.
pub fn on_disk(erofs: &Erofs, size: u64, inode: &InodeFacts) -> u64 {
    match inode.compressed_blocks {
        Some(blocks) => u64::from(blocks) << erofs.superblock().blkszbits,
        None => size,
    }
}

fn attributes(image: &Image, node: NodeId, metadata: &Metadata, zone: &TimeZone) -> Result<String> {
    let size = metadata.size;
    let erofs = driver(image)?;
    let facts = erofs.inode(node)?;
    let layout = facts.layout.number();
    let on_disk = on_disk(erofs, size, &facts);
    let ratio = percent(on_disk, size);
    let inode = facts.len;
    let kind = match metadata.kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::CharDevice => "char dev",
        FileType::BlockDevice => "block dev",
        FileType::Fifo => "FIFO file",
        FileType::Socket => "SOCK file",
        FileType::Symlink => "symlink file",
    };
    // Like the original, shows no set-id and sticky bits.
    let bits = metadata.mode & 0o777;
    let access = mode(metadata.kind, bits);
    let access = access.get(1..).unwrap_or_default();
    let time = jiff::Timestamp::from_second(metadata.mtime.seconds).unwrap_or_default();
    let time = time
        .to_zoned(zone.clone())
        .strftime("%Y-%m-%d %H:%M:%S")
        .to_string();
    let nanoseconds = metadata.mtime.nanoseconds;
    Ok(format!(
        "Size: {size}  On-disk size: {on_disk}  {kind}\n\
         NID: {}   Links: {}   Layout: {layout}   Compression ratio: {ratio}%\n\
         Inode size: {inode}   Extent size: 0   Xattr size: {}\n\
         Uid: {}   Gid: {}  Access: {:04o}/{access}\n\
         Timestamp: {time}.{nanoseconds:09}\n",
        node.0, metadata.nlink, facts.xattr_isize, metadata.uid, metadata.gid, bits,
    ))
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
            assert!(matches!(refused, Err(Refusal::Usage(_))), "{line:?}");
        }
    }
}
