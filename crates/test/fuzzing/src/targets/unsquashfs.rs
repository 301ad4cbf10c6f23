//! Compares forerun's SquashFS reader with unsquashfs, if `FORERUN_UNSQUASHFS` names that program.
//!
//! Otherwise the target reads images only with forerun: fuzzing does not depend on an installed
//! program, and is thousands of times faster without one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use forerun::{Image, MemorySource, OpenOptions};
use forerun_squashfs::fuzzing;
use forerun_testkit::temp_dir;
use forerun_testkit::tree::{Keeps, ModelNode, TreeModel};

const PROGRAM: &str = "FORERUN_UNSQUASHFS";
/// Most bytes of a file that unsquashfs may write, including holes.
const MOST: u64 = 16 << 20;

fn program() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| std::env::var_os(PROGRAM).map(PathBuf::from));
    found.as_deref()
}

/// Reads an image with both readers, and compares the trees.
///
/// # Panics
/// If `check` and both readers find no error, but the trees differ.
pub fn compare(bytes: &[u8]) {
    let Some(ours) = ours(bytes) else { return };
    let Some(program) = program() else { return };
    let dir = temp_dir("fuzz-unsquashfs");
    let (image, out) = (dir.path().join("image"), dir.path().join("out"));
    let written = std::fs::write(&image, bytes);
    assert!(written.is_ok(), "{written:?}");
    // Other programs set the limits, because those of this process belong to the fuzzer.
    let mut command = Command::new("timeout");
    command.args(["3", "prlimit", &format!("--fsize={MOST}"), "--"]);
    command.arg(program);
    command.args(["-no-progress", "-no-xattrs", "-processors", "1", "-dest"]);
    command.arg(&out).arg(&image);
    let output = command.stdin(Stdio::null()).output();
    assert!(output.is_ok(), "{output:?}");
    let Ok(output) = output else { return };
    if !output.status.success() || !output.stderr.is_empty() {
        return;
    }
    let theirs = TreeModel::of_host(&out);
    assert!(theirs.is_ok(), "{theirs:?}");
    let Ok(theirs) = theirs else { return };
    // unsquashfs treats inodes with the same number as one inode, wherever they are. Numbers are
    // not unique in a malicious image.
    let same = |(path, node): (&Vec<u8>, &ModelNode)| {
        let ours = ours.nodes.get(path);
        ours.is_none_or(|ours| ours.linked_to == node.linked_to)
    };
    if theirs.nodes.iter().all(same) {
        theirs.assert_same(&ours, &Keeps::CONTENTS);
    }
}

/// Reads the tree with forerun. Returns `None` if the reader or `check` reports an error, or if a
/// file is too long to extract. If two fields of an image contradict each other, such as the type
/// in an entry and in its inode, the readers may believe different fields.
fn ours(bytes: &[u8]) -> Option<TreeModel> {
    if !fuzzing::walk(bytes).is_empty() {
        return None;
    }
    let options = OpenOptions {
        format: Some("squashfs".to_string()),
        limits: fuzzing::limits(),
        ..OpenOptions::default()
    };
    let source = Arc::new(MemorySource::new(bytes));
    let image = Image::from_source(source, &options).ok()?;
    let reader = image.reader();
    let mut total = 0_u64;
    for entry in reader.walk(reader.fs().root()) {
        let metadata = entry.ok()?.metadata.ok()?;
        total = total.saturating_add(metadata.size);
        if total > MOST {
            return None;
        }
    }
    TreeModel::of_reader(reader.fs(), |node, at, out| reader.read_into(node, at, out)).ok()
}
