//! Tests of the test kit: the suites accept valid drivers and sources, and refuse others.

use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};

use forerun_io::{FileSource, MemorySource, Window};
use forerun_testkit::conformance::{check_filesystem, check_source};
use forerun_testkit::tree::{Keeps, TreeModel, diff, hash_of, read_extents};
use forerun_testkit::{FaultSource, MemFsBuilder, MemImage, Piece, Shape, generate, temp_dir};
use forerun_vfs::{
    Device, DirCursor, DirEntry, Extent, FileSystem, FileType, Limits, Metadata, NodeId, Place,
    Result, VolumeInfo,
};

fn every_kind(clamp: bool) -> MemImage {
    let mut build = MemFsBuilder::new();
    build.clamp_extents(clamp).align(16);
    let tails = build.encode(&generate::bytes(7, 3000));
    build.file("empty", []);
    let pieces = [
        Piece::Stored(generate::bytes(1, 5000)),
        Piece::Zero(70_000),
        Piece::Encoded {
            bytes: generate::bytes(2, 300_000),
            block_len: 131_072,
        },
        Piece::Inline(b"inline".to_vec()),
        Piece::Fragment {
            block: tails,
            skip: 1000,
            bytes: generate::bytes(7, 3000)[1000..1500].to_vec(),
        },
    ];
    let file = build.file("a/b/all", pieces);
    build.hard_link("again", file);
    build.symlink("a/link", b"../empty");
    build.xattr(file, b"user.x", b"value");
    let device = Device { major: 8, minor: 1 };
    build.special("block", FileType::BlockDevice, device);
    build.special("fifo", FileType::Fifo, Device::default());
    for n in 0..100 {
        build.file(
            &format!("many/{n}"),
            [Piece::Stored(vec![n; usize::from(n)])],
        );
    }
    build.build()
}

#[test]
fn memfs_conforms_and_reads_as_built() {
    for clamp in [true, false] {
        let image = every_kind(clamp);
        check_filesystem(&*image.fs, &Limits::default());
        for node in image.fs.nodes() {
            if image.fs.metadata(node).unwrap().kind != FileType::Regular {
                continue;
            }
            for range in [0..u64::MAX, 4990..5010, 74_999..75_001, 380_000..390_000] {
                let got = read_extents(&*image.fs, &image.source, node, range.clone()).unwrap();
                assert!(
                    got == image.fs.content(node, range.clone()),
                    "{node} {range:?}"
                );
            }
        }
    }
}

struct Broken {
    inner: MemImage,
    how: &'static str,
}

impl FileSystem for Broken {
    fn volume(&self) -> &VolumeInfo {
        self.inner.fs.volume()
    }
    fn root(&self) -> NodeId {
        self.inner.fs.root()
    }
    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        match self.how {
            "not stale" if node.0 == u64::MAX => self.inner.fs.metadata(self.root()),
            "panics" if node.0 == 0 => unreachable!("ids count from 1"),
            _ => self.inner.fs.metadata(node),
        }
    }
    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        match self.how {
            "finds nothing" => Ok(None),
            "finds prefixes" => {
                let mut found = self.inner.fs.lookup(dir, name)?;
                self.read_dir(dir, DirCursor::START, &mut |entry| {
                    if !name.is_empty() && entry.name.starts_with(name) {
                        found = found.or(Some(entry.node));
                    }
                    ControlFlow::Continue(())
                })?;
                Ok(found)
            }
            _ => self.inner.fs.lookup(dir, name),
        }
    }
    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.how {
            "restarts" => self.inner.fs.read_dir(dir, DirCursor::START, visit),
            "visits on" => self.inner.fs.read_dir(dir, from, &mut |entry| {
                let _ignored = visit(entry);
                ControlFlow::Continue(())
            }),
            "lists dots" => self.inner.fs.read_dir(dir, from, &mut |mut entry| {
                entry.name = b"..";
                visit(entry)
            }),
            _ => self.inner.fs.read_dir(dir, from, visit),
        }
    }
    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        match self.how {
            "links everywhere" => Ok(b"x".to_vec()),
            _ => self.inner.fs.read_link(node),
        }
    }
    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.how {
            "maps directories" if self.metadata(node)?.kind == FileType::Directory => Ok(()),
            "shifts parts" => self.inner.fs.map(node, range.clone(), &mut |mut extent| {
                if let Place::Stored { offset, .. } = &mut extent.place {
                    *offset += range.start;
                }
                visit(extent)
            }),
            "leaves gaps" => self.inner.fs.map(node, range, &mut |mut extent| {
                extent.logical.start += u64::from(extent.logical.start > 0);
                visit(extent)
            }),
            "past the end" => self.inner.fs.map(node, range, &mut |mut extent| {
                extent.logical.end += 1;
                visit(extent)
            }),
            _ => self.inner.fs.map(node, range, visit),
        }
    }
}

#[test]
fn the_filesystem_suite_refuses_each_broken_driver() {
    for how in [
        "not stale",
        "panics",
        "finds nothing",
        "finds prefixes",
        "restarts",
        "visits on",
        "lists dots",
        "links everywhere",
        "maps directories",
        "shifts parts",
        "leaves gaps",
        "past the end",
    ] {
        let inner = every_kind(true);
        let broken = Broken { inner, how };
        let suite = || check_filesystem(&broken, &Limits::default());
        assert!(catch_unwind(AssertUnwindSafe(suite)).is_err(), "{how}");
    }
}

#[test]
fn sources_conform() {
    check_source(|bytes| MemorySource::new(bytes));
    check_source(|bytes| {
        let mut around = vec![1; 100];
        around.extend_from_slice(bytes);
        around.extend_from_slice(&[2; 100]);
        let len = u64::try_from(bytes.len()).unwrap();
        Window::new(MemorySource::new(around), 100, Some(len)).unwrap()
    });
    let dir = temp_dir("source");
    check_source(|bytes| {
        let path = dir.path().join(bytes.len().to_string());
        std::fs::write(&path, bytes).unwrap();
        FileSource::open(&path).unwrap()
    });
}

#[test]
fn the_source_suite_refuses_faults() {
    for n in [0, 1, 5, 40] {
        let failing = |bytes: &[u8]| FaultSource::fail_nth(MemorySource::new(bytes), n);
        assert!(catch_unwind(AssertUnwindSafe(|| check_source(failing))).is_err());
        let short = |bytes: &[u8]| FaultSource::short_nth(MemorySource::new(bytes), n);
        assert!(catch_unwind(AssertUnwindSafe(|| check_source(short))).is_err());
    }
}

#[test]
fn models_of_host_and_image_agree() {
    let dir = temp_dir("model");
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    std::fs::write(dir.path().join("a/one"), b"one").unwrap();
    std::fs::hard_link(dir.path().join("a/one"), dir.path().join("a/b/two")).unwrap();
    std::os::unix::fs::symlink("one", dir.path().join("a/link")).unwrap();
    let host = TreeModel::of_host(dir.path()).unwrap();

    let mut build = MemFsBuilder::new();
    let one = build.file("a/one", [Piece::Stored(b"one".to_vec())]);
    build.hard_link("a/b/two", one);
    let link = build.symlink("a/link", b"one");
    let image = build.build();
    let model = TreeModel::of_image(&*image.fs, &image.source).unwrap();
    host.assert_same(&model, &Keeps::ROMFS);
    assert_eq!(model.nodes[&b"a/one"[..]].content, Some(hash_of(b"one")));
    assert_eq!(
        model.nodes[&b"a/one"[..]].linked_to.as_deref(),
        Some(&b"a/b/two"[..])
    );
    assert_eq!(image.fs.metadata(link).unwrap().size, 3);

    let mut other = model.clone();
    other.nodes.remove(&b"a/link"[..]);
    let two = other.nodes.get_mut(&b"a/b/two"[..]).unwrap();
    two.content = Some(0);
    two.linked_to = None;
    two.mode = 0o755;
    let shown: Vec<String> = diff(&model, &other, &Keeps::ROMFS)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        shown,
        [
            "/a/b/two: other contents in 3 bytes",
            "/a/b/two: mode 0755 instead of 0644: whether it is executable differs",
            "/a/b/two: not a hard link instead of linked to /a/b/two",
            "/a/link: symlink is missing",
        ]
    );
}

#[test]
fn shapes_are_the_same_every_time() {
    for &shape in Shape::ALL {
        // Tests that need the largest trees make them.
        if matches!(shape, Shape::BigFile | Shape::ManyFiles) {
            continue;
        }
        if shape.needs_root() && !forerun_testkit::require::root() {
            continue;
        }
        let (one, two) = (temp_dir("shape"), temp_dir("shape"));
        shape.populate(one.path());
        shape.populate(two.path());
        let one = TreeModel::of_host(one.path()).unwrap();
        let two = TreeModel::of_host(two.path()).unwrap();
        let keeps = Keeps {
            times: false,
            ..Keeps::EVERYTHING
        };
        one.assert_same(&two, &keeps);
    }
}

#[test]
#[ignore = "run by what_is_missing_fails_in_ci_and_is_loud_elsewhere"]
fn needs_what_no_machine_has() {
    let _missing = forerun_testkit::require::program("no-such-program");
}

#[test]
fn what_is_missing_fails_in_ci_and_is_loud_elsewhere() {
    let run = |ci: &str| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--ignored",
                "self_check::needs_what_no_machine_has",
            ])
            .env("CI", ci)
            .output()
            .unwrap()
    };
    assert!(!run("true").status.success());
    let elsewhere = run("");
    assert!(elsewhere.status.success());
    let shown = String::from_utf8_lossy(&elsewhere.stderr);
    let expected = "SKIP: self_check::needs_what_no_machine_has: this machine lacks the program no-such-program";
    assert!(shown.contains(expected), "{shown}");
}
