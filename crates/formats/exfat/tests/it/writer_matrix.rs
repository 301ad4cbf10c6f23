//! Every option of the writer, checked by `fsck.exfat`, by `exfat-fuse`, by Linux in a guest, and
//! by a checker that shares no code with this crate.

use std::fmt::Write as _;
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use forerun_build::Tree;
use forerun_exfat::write::{ExfatOptions, write};
use forerun_io::FileSource;
use forerun_testkit::everything::run;
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::guest::{self, Guest};
use forerun_testkit::machine_code::Machine;
use forerun_testkit::matrix::{Judged, Row, Table, assert_varied, judge_all};
use forerun_testkit::trees::scanned;
use forerun_testkit::{Keeps, Mounted, TempDir, TreeModel, require, temp_dir};

fn rows() -> Vec<Row<ExfatOptions>> {
    let mut rows = vec![Row::new("defaults", ExfatOptions::default())];
    let mut add = |name: &str, change: &dyn Fn(&mut ExfatOptions)| {
        let mut options = ExfatOptions::default();
        change(&mut options);
        rows.push(Row::new(name, options));
    };
    for (name, cluster) in [
        ("clusters of a sector", 512),
        ("clusters of 4 KiB", 4096),
        ("clusters of 64 KiB", 65_536),
        ("the largest clusters", 32 << 20),
    ] {
        add(name, &|to| to.cluster_size = Some(cluster));
    }
    for (name, sector) in [("sectors of 2 KiB", 2048), ("sectors of 4 KiB", 4096)] {
        add(name, &|to| to.sector_size = sector);
    }
    add("large sectors and clusters", &|to| {
        (to.sector_size, to.cluster_size) = (4096, Some(32_768));
    });
    add("a length that is no multiple", &|to| {
        to.size = Some(5_000_001)
    });
    add("a large volume", &|to| to.size = Some(300 << 20));
    add("room", &|to| to.free = 10 << 20);
    for (name, align) in [("aligned to a sector", 512), ("aligned to 1 MiB", 1 << 20)] {
        add(name, &|to| to.align = Some(align));
    }
    add("a label", &|to| to.label = "Volume \u{e4}".into());
    add("serial number 0", &|to| to.serial = Some(0));
    add("a serial number", &|to| to.serial = Some(0x1234_abcd));
    add("a GUID", &|to| to.guid = Some([7; 16]));
    add("last dots", &|to| to.keep_last_dots = true);
    add("tails not valid", &|to| to.sparse_tails = true);
    rows
}

/// A tree as a host directory, and in the form for writers.
struct Source {
    dir: TempDir,
    tree: Tree,
}

impl Source {
    fn new(populate: impl FnOnce(&Path)) -> Self {
        let dir = temp_dir("exfat-matrix");
        populate(dir.path());
        Self {
            tree: scanned(dir.path()),
            dir,
        }
    }
}

struct Sample {
    plain: Source,
    /// The same tree with a name that ends with a dot.
    dotted: Source,
}

impl Sample {
    fn new() -> Self {
        Self {
            plain: Source::new(populate),
            dotted: Source::new(|dir| {
                fs::create_dir(dir.join("dir")).unwrap();
                fs::write(dir.join("dir/dot."), "dot").unwrap();
                populate(dir);
            }),
        }
    }

    fn source(&self, options: &ExfatOptions) -> &Source {
        if options.keep_last_dots {
            &self.dotted
        } else {
            &self.plain
        }
    }

    fn pack(&self, options: &ExfatOptions, path: &Path) {
        let mut image = File::create(path).unwrap();
        let tree = &self.source(options).tree;
        let len = write(tree, options, &mut image, &Arc::default()).unwrap();
        assert_eq!(len, image.metadata().unwrap().len());
    }

    /// Compares a mounted volume with its tree.
    fn same(&self, options: &ExfatOptions, seen: &TreeModel) {
        let keeps = Keeps {
            times: true,
            ..Keeps::CONTENTS
        };
        let mut expected = TreeModel::of_host(self.source(options).dir.path()).unwrap();
        // The root has no entry, so it has no time.
        expected.nodes.get_mut(&b""[..]).unwrap().mtime = seen.nodes[&b""[..]].mtime;
        expected.assert_same(seen, &keeps);
    }

    fn judge(&self, row: &Row<ExfatOptions>, dir: &Path) -> Judged {
        let options = &row.options;
        let path = dir.join("image");
        self.pack(options, &path);
        let mut judged = Judged::default();

        let report = judge(&FileSource::open(&path).unwrap()).unwrap();
        assert!(report.clean(), "{:?}", report.findings);
        let geometry = &report.geometry;
        assert_eq!(report.label.as_bytes(), options.label);
        assert!(
            options
                .serial
                .is_none_or(|serial| serial == geometry.serial)
        );
        let cluster = options.cluster_size.map(u64::from);
        assert!(cluster.is_none_or(|cluster| cluster == geometry.cluster));
        let free = u64::from(geometry.clusters - report.allocated) * geometry.cluster;
        assert!(free >= options.free, "{free} bytes free");
        judged.by("the checker");

        let told = run(Command::new("fsck.exfat").arg("-n").arg(&path));
        assert!(told.contains("clean"), "{told}");
        judged.by("fsck.exfat");

        if options.guid.is_some() {
            judged.not_by("exfat-fuse", "version 1.3 refuses volumes with a GUID");
            return judged;
        }
        let mount = dir.join("mount");
        let sector = format!("--sector-size={}", options.sector_size);
        let mounted = Mounted::exfat_fuse(&path, mount.clone(), "ro", &[&sector]);
        let seen = TreeModel::of_host(&mount).unwrap();
        drop(mounted);
        self.same(options, &seen);
        judged.by("exfat-fuse");
        judged
    }
}

/// Fills a directory: file lengths around sectors and clusters, name lengths around entries, zeros.
fn populate(dir: &Path) {
    fs::create_dir_all(dir.join("dir/below/empty directory")).unwrap();
    for len in [0, 1, 511, 512, 513, 4095, 4096, 4097, 65_536, 100_000] {
        fs::write(dir.join(format!("dir/{len}")), Machine::X86.code(len, 0)).unwrap();
    }
    for len in [15, 16, 30, 31, 255] {
        let name = "n".repeat(len);
        fs::write(dir.join("dir/below").join(&name), &name).unwrap();
    }
    fs::write(dir.join("\u{e4}\u{20ac}\u{1F600}"), "units").unwrap();
    let mut zeros = vec![0; 300_000];
    fs::write(dir.join("zeros"), &zeros).unwrap();
    zeros[100_000] = 1;
    fs::write(dir.join("zeros at the end"), &zeros).unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    for number in 0..200 {
        fs::write(dir.join(format!("many/file {number}")), "").unwrap();
    }
    date(dir);
}

fn date(path: &Path) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            date(&entry.unwrap().path());
        }
    }
    let time = UNIX_EPOCH + Duration::from_secs(1_600_000_001);
    let times = FileTimes::new().set_modified(time);
    File::open(path).unwrap().set_times(times).unwrap();
}

#[test]
fn every_option_is_judged_by_fsck_and_by_exfat_fuse() {
    let tools = ["fsck.exfat", "mount.exfat-fuse", "losetup"];
    let has_tools = tools.iter().all(|tool| require::program(tool).is_some());
    if !has_tools || !require::root() || !require::fuse() {
        return;
    }
    let sample = Sample::new();
    judge_all(TABLE, &rows(), |row, dir| sample.judge(row, dir));
}

const TABLE: Table<'_> = Table {
    format: "exfat",
    whole: &["label", "guid", "size", "free"],
    fixed: &[],
};

/// Checks all volumes in one guest, because a boot takes longer than reading them.
#[test]
fn linux_reads_volumes_made_with_every_option() {
    if !guest::available() {
        return;
    }
    let sample = Sample::new();
    let mut rows = rows();
    let options: Vec<_> = rows.iter().map(|row| &row.options).collect();
    assert_varied(TABLE, &options);
    // Debian 12 has Linux 6.1. Linux before 6.8 ends a file at the end of its valid data.
    rows.retain(|row| !row.options.sparse_tails);
    let dir = temp_dir("exfat-matrix-guest");
    let out = dir.path().join("out");
    let mut guest = Guest::new();
    guest.module("exfat").module("nls_utf8").out(&out, 64 << 20);
    let mut script = String::from("set -e\n");
    for (number, row) in rows.iter().enumerate() {
        let image = dir.path().join(number.to_string());
        sample.pack(&row.options, &image);
        let device = guest.attach(&image);
        let dots = if row.options.keep_last_dots {
            ",keep_last_dots"
        } else {
            ""
        };
        let mount = format!("mount -t exfat -o ro,iocharset=utf8,time_offset=0{dots}");
        let dir = format!("/mnt/{number}");
        writeln!(script, "mkdir {dir}; {mount} {device} {dir}").unwrap();
    }
    script += "cd /mnt; tar cf $OUT .\n";
    let Some(output) = guest.run(&script) else {
        return;
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let seen = TreeModel::of_tar(File::open(&out).unwrap()).unwrap();
    for (number, row) in rows.iter().enumerate() {
        eprintln!("{}: judged by Linux", row.name);
        sample.same(&row.options, &seen.below(&number.to_string()));
    }
}
