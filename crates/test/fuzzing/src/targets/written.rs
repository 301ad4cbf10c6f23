//! Writers and readers: a tree is written to an image, and the reader must return the same tree.

use std::sync::Arc;

use forerun::build::{BuildError, ComposefsOptions, ExfatOptions, RomfsOptions, Tree};
use forerun::vfs::{FileSystem, Verity};
use forerun::{EngineOptions, Image, MemorySource, Observer, OpenOptions, Writer};
use forerun_testkit::everything::image_xattrs;
use forerun_testkit::temp_dir;
use forerun_testkit::tree::{Keeps, ModeKept, TreeModel};

use super::Made;
use crate::input::{Input, random_seeds};
use crate::options;
use crate::trees::{Allowed, model_of, tree};

pub fn seeds() -> Made {
    Ok(random_seeds(24, 700))
}

pub fn romfs(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let writer = Writer::Romfs(RomfsOptions {
        align: input.one_of(&[16, 32, 512, 4096]),
        ..RomfsOptions::default()
    });
    let allowed = Allowed {
        special: true,
        ..Allowed::default()
    };
    let tree = tree(&mut input, allowed);
    compare(&writer, &tree, &Keeps::ROMFS, OpenOptions::default());
}

pub fn squashfs(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let writer = Writer::Squashfs(options::squashfs(&mut input));
    keeps_everything(&writer, &mut input, OpenOptions::default());
}

pub fn erofs(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let writer = Writer::Erofs(options::erofs(&mut input));
    keeps_everything(&writer, &mut input, OpenOptions::default());
}

pub fn composefs(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let store = temp_dir("fuzz-objects");
    let mut options = ComposefsOptions::default();
    options.objects = Some(store.path().to_path_buf());
    options.inline = input.one_of(&[0, 64, 4095]);
    (options.min_version, options.max_version) = input.one_of(&[(0, 0), (0, 1), (1, 1)]);
    options.threads = 1;
    let open = OpenOptions {
        objects: Some(store.path().to_path_buf()),
        verity: Verity::Require,
        ..OpenOptions::default()
    };
    let writer = Writer::Composefs(options);
    keeps_everything(&writer, &mut input, open);
}

fn keeps_everything(writer: &Writer, input: &mut Input<'_>, open: OpenOptions) {
    compare(writer, &tree(input, ALL), &Keeps::EVERYTHING, open);
}

pub fn exfat(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let writer = Writer::Exfat(ExfatOptions {
        cluster_size: Some(input.one_of(&[512, 4096, 32_768])),
        sparse_tails: input.flag(),
        free: input.word().into(),
        ..ExfatOptions::default()
    });
    let plain = Allowed {
        plain_names: true,
        ..Allowed::default()
    };
    let keeps = Keeps {
        modes: ModeKept::None,
        ..Keeps::CONTENTS
    };
    compare(
        &writer,
        &tree(&mut input, plain),
        &keeps,
        OpenOptions::default(),
    );
}

const ALL: Allowed = Allowed {
    special: true,
    xattrs: true,
    plain_names: false,
};

/// Writes the tree, opens the image and compares the result.
///
/// # Panics
/// If the tree differs, if `check` finds something, or if the writer fails for another reason than
/// that the format cannot store the tree.
fn compare(writer: &Writer, tree: &Tree, keeps: &Keeps, open: OpenOptions) {
    let mut image = Vec::new();
    let written = writer.write(tree, &mut image, &Arc::new(Observer::default()));
    match written {
        Ok(_) => {}
        Err(BuildError::Format { .. } | BuildError::Name { .. } | BuildError::Conflict { .. }) => {
            return;
        }
        Err(error) => unreachable!("a tree in memory: {error}"),
    }
    let options = OpenOptions {
        format: Some(writer.name().to_string()),
        engine: EngineOptions {
            threads: 1,
            cache: 1 << 20,
            ..EngineOptions::default()
        },
        ..open
    };
    let source = Arc::new(MemorySource::new(image));
    let opened = Image::from_source(source, &options);
    assert!(opened.is_ok(), "{:?}", opened.err());
    let Ok(opened) = opened else { return };
    let reader = opened.reader();
    let fs = reader.fs();
    let shown = TreeModel::of_reader(fs, |node, at, out| reader.read_into(node, at, out));
    assert!(shown.is_ok(), "{:?}", shown.err());
    let Ok(shown) = shown else { return };
    let (expected, xattrs) = model_of(tree);
    expected.assert_same(&shown, keeps);
    if keeps.owners {
        assert_eq!(image_xattrs(fs), xattrs);
    }
    check(fs);
}

fn check(fs: &dyn FileSystem) {
    let mut problems = Vec::new();
    let checked = fs.check(None, &mut |problem| {
        problems.push(problem.error.to_string())
    });
    assert!(
        checked.is_ok() && problems.is_empty(),
        "{checked:?} {problems:?}"
    );
}
