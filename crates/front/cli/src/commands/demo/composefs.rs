//! composefs: a tree listed as `ls -lR` does. Without readahead the metadata is read in blocks as the
//! listing comes to them; forerun reads it ahead in large requests.

use std::sync::Arc;

use forerun::build::{ComposefsOptions, Content, NewNode, NodeKind, Tree};
use forerun::vfs::Timestamp;
use forerun::{EngineOptions, Writer};
use forerun_io::Counter;

use super::measure::{Kit, TreeListing, list};
use super::model::{DemoPart, PartName, Row, RowRole};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size;

/// Files for each MiB of the largest file, at most [`MOST`].
const FILES: u64 = 80;
const MOST: u64 = 20_000;
/// Files of a directory, and directories of the one above.
const EACH: u64 = 16;

const fn files(size: u64) -> u64 {
    let files = (size >> 20) * FILES;
    if files < MOST { files } else { MOST }
}

/// Describes the part.
pub fn begin(kit: &Kit) -> DemoPart {
    let files = size::counted(files(kit.size), "file", "files");
    let what = format!("Mounts an image and lists a tree of {files} with all metadata, as ls -lR.");
    DemoPart::new(PartName::Composefs, what)
}

/// Measures it.
pub fn measure(kit: &Kit, part: &mut DemoPart) -> Result<()> {
    let image = kit.place.path("image.composefs");
    let tree = tree(files(kit.size))?;
    let writer = Writer::Composefs(ComposefsOptions::default());
    super::files::write(&writer, &tree, &image)?;
    let legacy = EngineOptions {
        large_blocks: false,
        ..EngineOptions::default()
    };
    // The better of two runs each: the times are short.
    let twice = |engine: &EngineOptions| -> Result<TreeListing> {
        let first = list(kit, &image, engine)?;
        let second = list(kit, &image, engine)?;
        Ok(if first.time <= second.time {
            first
        } else {
            second
        })
    };
    let slow = twice(&legacy)?;
    let ours = twice(&EngineOptions::default())?;
    let expected = size::count_of(tree.len()) - 1;
    if (slow.entries, ours.entries) != (expected, expected) {
        let (slow, ours) = (slow.entries, ours.entries);
        let message = format!("{slow} and {ours} entries were listed instead of {expected}");
        return Err(Failure::new(Exit::Image, "mismatch", message).of(image.display()));
    }
    part.rows = vec![
        row(
            "as_needed",
            RowRole::Legacy,
            "legacy: as it is needed",
            &slow,
        ),
        row("ahead", RowRole::Ours, "forerun: read ahead", &ours),
    ];
    part.notes.push(
        "The legacy way reads blocks of 1 KiB one by one (forerun mount -o nolargeblocks). Times are from \
         the opening of the image on, the better of two. Contents are objects elsewhere, and none is looked up."
            .to_string(),
    );
    super::remove(&image);
    Ok(())
}

fn row(id: &'static str, role: RowRole, what: &str, listing: &TreeListing) -> Row {
    Row {
        id,
        role,
        what: what.to_string(),
        seconds: listing.time.as_secs_f64(),
        count: Some(listing.stats.get(Counter::SourceRequests)),
        extrapolated: false,
    }
}

/// Makes a tree of `files` files in directories of directories. Their contents are all the same: only
/// metadata is read.
fn tree(files: u64) -> Result<Tree> {
    let content: Arc<[u8]> = [b'#'; 100].into();
    let mut tree = Tree::default();
    let mut parents = [Tree::ROOT; 2];
    for n in 0..files {
        if n % (EACH * EACH) == 0 {
            let name = format!("package-{:03}", n / (EACH * EACH));
            parents[0] = tree.add(Tree::ROOT, name.as_bytes(), NewNode::directory())?;
        }
        if n % EACH == 0 {
            let name = format!("module-{:02}", n / EACH % EACH);
            parents[1] = tree.add(parents[0], name.as_bytes(), NewNode::directory())?;
        }
        let kind = NodeKind::File {
            len: size::count_of(content.len()),
            content: Content::Bytes(Arc::clone(&content)),
        };
        let mut node = NewNode::new(kind, 0o644);
        // As in real trees, hardly two files have the same time.
        node.mtime = Timestamp {
            seconds: 1_700_000_000_i64.saturating_add_unsigned(n * 61),
            nanoseconds: 0,
        };
        tree.add(
            parents[1],
            format!("source-file-{n:05}.py").as_bytes(),
            node,
        )?;
    }
    Ok(tree)
}
