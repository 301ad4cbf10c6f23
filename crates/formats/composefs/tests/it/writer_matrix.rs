//! Every option of the writer, judged by Linux: it mounts the image as EROFS, under overlayfs with
//! the objects. `digests.rs` compares images with those of the reference implementation.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use forerun_build::Tree;
use forerun_composefs::Algorithm;
use forerun_composefs::write::{ComposefsOptions, write};
use forerun_testkit::everything::{Xattrs, small, xattrs_of};
use forerun_testkit::matrix::{Judged, Row, Table, judge_all};
use forerun_testkit::trees::scanned;
use forerun_testkit::{Keeps, Mounted, TempDir, TreeModel, require, temp_dir};
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn rows(stores: &Path) -> Vec<Row<ComposefsOptions>> {
    let mut rows = Vec::new();
    let mut add = |name: &str, change: &dyn Fn(&mut ComposefsOptions)| {
        let mut options = ComposefsOptions::default();
        options.objects = Some(stores.join(name));
        change(&mut options);
        rows.push(Row::new(name, options));
    };
    add("defaults", &|_| {});
    for inline in [0, 1, 4095] {
        add(&format!("inline {inline}"), &|to| to.inline = inline);
    }
    for (low, high) in [(0, 0), (0, 1), (1, 1)] {
        add(&format!("versions {low} to {high}"), &|to| {
            (to.min_version, to.max_version) = (low, high);
        });
    }
    add("hard links", &|to| to.hard_links = true);
    add("sha512", &|to| to.digest = Algorithm::Sha512);
    add("three threads", &|to| to.threads = 3);
    // Its objects are those of the row `defaults`.
    add("no objects", &|to| to.objects = None);
    rows
}

struct Sample {
    dir: TempDir,
    tree: Tree,
    model: TreeModel,
    xattrs: Xattrs,
}

impl Sample {
    fn new() -> Self {
        let dir = temp_dir("composefs-matrix");
        small(dir.path());
        let whiteout = dir.path().join(WHITEOUTS).join("whiteout");
        fs::create_dir(dir.path().join(WHITEOUTS)).unwrap();
        mknodat(
            CWD,
            whiteout,
            FileType::CharacterDevice,
            Mode::from(0o600),
            0,
        )
        .unwrap();
        let model = compared(dir.path());
        Self {
            tree: scanned(dir.path()),
            xattrs: xattrs_of(dir.path(), &model),
            model,
            dir,
        }
    }

    fn judge(&self, row: &Row<ComposefsOptions>, dir: &Path, defaults: &Path) -> Judged {
        let path = dir.join("image");
        let mut image = Vec::new();
        write(&self.tree, &row.options, &mut image, &Arc::default()).unwrap();
        fs::write(&path, &image).unwrap();
        let store = row.options.objects.as_deref().unwrap_or(defaults);
        let lower = Mounted::new("erofs", "ro,loop", &path, dir.join("lower"));
        let options = format!(
            "ro,metacopy=on,redirect_dir=on,lowerdir={}::{}",
            lower.path.display(),
            store.display()
        );
        let merged = Mounted::new(
            "overlay",
            &options,
            Path::new("overlay"),
            dir.join("merged"),
        );
        let seen = compared(&merged.path);
        self.model.assert_same(&seen, &Keeps::EVERYTHING);
        let xattrs = xattrs_of(&merged.path, &seen);
        assert_eq!(xattrs, self.xattrs);
        drop(merged);
        drop(lower);
        let mut judged = Judged::default();
        judged.by("the kernel");
        judged
    }
}

/// The name of a directory with a whiteout, which decides the version of the format. In an image,
/// the whiteout becomes an empty file, and the directory gets attributes.
const WHITEOUTS: &str = "whiteouts";

/// Returns a tree without the nodes that an image changes on purpose.
fn compared(root: &Path) -> TreeModel {
    let mut model = TreeModel::of_host(root).unwrap();
    model
        .nodes
        .retain(|path, _| !path.starts_with(WHITEOUTS.as_bytes()));
    model
}

#[test]
fn every_option_is_judged_by_the_kernel() {
    let has_drivers = ["erofs", "overlay"].map(require::kernel_filesystem);
    if !require::root() || require::program("mount").is_none() || has_drivers.contains(&false) {
        return;
    }
    let stores = temp_dir("composefs-matrix-stores");
    let sample = Sample::new();
    let rows = rows(stores.path());
    let defaults = stores.path().join(&rows[0].name);
    // The row without a store needs the objects of the defaults, in any order of rows.
    let mut image = Vec::new();
    write(&sample.tree, &rows[0].options, &mut image, &Arc::default()).unwrap();
    let table = Table {
        format: "composefs",
        whole: &["objects"],
        fixed: &[],
    };
    judge_all(table, &rows, |row, dir| sample.judge(row, dir, &defaults));
    drop(sample.dir);
}
