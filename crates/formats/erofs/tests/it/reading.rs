//! Images made by mkfs.erofs read back as their trees, and as Linux reads them.

use std::fs::{self, File};
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use forerun_erofs::fuzzing::{nid, walk, with_split_chunk};
use forerun_io::{BlobId, Limits};
use forerun_testkit::conformance::{check_filesystem, check_names};
use forerun_testkit::{Keeps, LoopDevice, Mounted, TreeModel, require, temp_dir};
use forerun_vfs::{Error, Extent, FollowLast, NodeId, Place, resolve};

use crate::common::*;

/// How the image is expected to differ from the tree.
#[derive(Clone, Copy, Default)]
struct Expect {
    no_xattrs: bool,
    no_times: bool,
    no_owners: bool,
}

/// Makes an image with these options, reads all of it, and compares it with the tree and with
/// Linux.
fn check(sample: &Sample, options: &[&str], expect: Expect) {
    // Shown if the test fails.
    eprintln!("{options:?}");
    let image = sample.make(options);
    check_image(sample, &image, &[], expect);
}

fn check_image(sample: &Sample, image: &Path, devices: &[PathBuf], expect: Expect) {
    let reader = reader(image, devices);
    let actual = model_of(&reader);
    let keeps = Keeps {
        times: !expect.no_times,
        owners: !expect.no_owners,
        ..Keeps::EVERYTHING
    };
    sample.model.assert_same(&actual, &keeps);
    let xattrs = image_xattrs(reader.fs());
    if expect.no_xattrs {
        assert!(xattrs.is_empty());
    } else {
        assert_eq!(xattrs, sample.xattrs);
    }
    for entry in reader.walk(reader.fs().root()) {
        let node = Some(entry.unwrap().node);
        reader
            .fs()
            .check(node, &mut |problem| panic!("{problem:?}"))
            .unwrap();
    }
    let mut mount = "ro,loop".to_string();
    let mut loops = Vec::new();
    for device in devices {
        let device = LoopDevice::new(device, &["--read-only"]);
        mount += &format!(",device={}", device.0.display());
        loops.push(device);
    }
    if require::kernel_filesystem("erofs") {
        let mounted = Mounted::new("erofs", &mount, image, sample.path("mnt"));
        // The comparison with Linux includes nanoseconds and links, which the model has only in
        // part.
        let kernel = TreeModel::of_host(&mounted.path).unwrap();
        kernel.assert_same(&actual, &Keeps::EVERYTHING);
        for (path, node) in &kernel.nodes {
            assert_eq!(node.mtime, actual.nodes[path].mtime, "{path:?}");
        }
    }
}

const AS_IS: Expect = Expect {
    no_xattrs: false,
    no_times: false,
    no_owners: false,
};

#[test]
fn every_option_of_the_layout() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    for options in [
        &[][..],
        &["-x", "0"],
        &["-x", "1"],
        &["-x", "1000"],
        &["-E", "force-inode-extended"],
        &["-E", "noinline_data"],
        &["-E", "force-inode-blockmap", "--chunksize", "4096"],
        &["-E", "force-chunk-indexes", "--chunksize", "4096"],
        &["--chunksize", "65536"],
        &["--chunksize", "1048576"],
    ] {
        check(&sample, options, AS_IS);
    }
    let no_xattrs = Expect {
        no_xattrs: true,
        ..AS_IS
    };
    check(&sample, &["-x", "-1"], no_xattrs);
}

#[test]
fn times_and_owners_that_are_not_the_tree_s() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    let no_times = Expect {
        no_times: true,
        ..AS_IS
    };
    check(&sample, &["-T", "1234567"], no_times);
    let reader = reader(&sample.path("image"), &[]);
    let fs = reader.fs();
    assert_eq!(fs.metadata(fs.root()).unwrap().mtime.seconds, 1_234_567);
    let no_owners = Expect {
        no_owners: true,
        ..AS_IS
    };
    check(&sample, &["--all-root"], no_owners);
}

/// Compact inodes hold neither large owner ids nor times.
#[test]
fn short_inodes() {
    let populate = |tree: &Path| {
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/file"), vec![7; 10_000]).unwrap();
        std::os::unix::fs::symlink("a/file", tree.join("link")).unwrap();
        fs::hard_link(tree.join("a/file"), tree.join("hard")).unwrap();
    };
    let Some(sample) = Sample::new(populate) else {
        return;
    };
    let no_times = Expect {
        no_times: true,
        ..AS_IS
    };
    check(&sample, &["-E", "force-inode-compact"], no_times);
    check(
        &sample,
        &["-E", "force-inode-compact", "-T", "77"],
        no_times,
    );
}

#[test]
fn every_way_to_compress() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    for options in [
        &["-z", "lz4"][..],
        &["-z", "lz4hc,12"],
        &["-z", "lz4", "-C", "65536"],
        &["-z", "lz4hc", "-C", "1048576"],
        &["-z", "lz4", "-E", "legacy-compress"],
        &["-z", "lz4", "-E", "ztailpacking"],
        &["-z", "lz4hc", "-E", "ztailpacking", "-C", "16384"],
        &["-z", "lz4", "-E", "fragments"],
        &["-z", "lz4", "-E", "all-fragments"],
        &["-z", "lz4", "-E", "fragments,ztailpacking", "-C", "32768"],
        &["-z", "lz4", "-E", "dedupe"],
        &["-z", "lz4", "-E", "dedupe,fragments", "-C", "65536"],
    ] {
        check(&sample, options, AS_IS);
    }
}

#[test]
fn data_on_another_device() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    let device = sample.path("device");
    File::create(&device).unwrap();
    let option = format!("--blobdev={}", device.display());
    let options = ["--chunksize", "4096", &option];
    eprintln!("{options:?}");
    let image = sample.make(&options);
    // The bytes that the loop device cuts off are file data.
    let len = fs::metadata(&device).unwrap().len();
    assert!(len > 0 && len % 4096 == 0);
    check_image(&sample, &image, &[device], AS_IS);
    // Without the device, everything except the data on it is readable.
    let reader = reader(&image, &[]);
    let fs = reader.fs();
    let path = b"sizes/65537";
    let node = resolve(fs, path, FollowLast::No, &Limits::default()).unwrap();
    assert_eq!(fs.metadata(node).unwrap().size, 65_537);
    let error = reader.read(node, 0, 10).err().unwrap();
    assert!(matches!(error, Error::Blob { .. }), "{error}");
    let mut blobs = Vec::new();
    fs.map(node, 0..u64::MAX, &mut |extent| {
        if let Place::Stored { blob, .. } = extent.place {
            blobs.push(blob);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(blobs.contains(&BlobId(1)), "{blobs:?}");
}

#[test]
fn the_contract_of_drivers() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    for options in [
        &[][..],
        &["-E", "force-chunk-indexes", "--chunksize", "4096"],
        &["-z", "lz4hc", "-E", "ztailpacking,fragments"],
    ] {
        let reader = reader(&sample.make(options), &[]);
        check_filesystem(reader.fs(), &Limits::default());
    }
}

#[test]
fn an_empty_tree() {
    let Some(sample) = Sample::new(|_| {}) else {
        return;
    };
    check(&sample, &[], AS_IS);
    let reader = reader(&sample.path("image"), &[]);
    let fs = reader.fs();
    check_filesystem(fs, &Limits::default());
    assert_eq!(fs.lookup(fs.root(), b"missing").unwrap(), None);
}

/// Reads an image from a window of a file, with other bytes around it.
#[test]
fn what_lies_around_an_image_does_not_matter() {
    let Some(sample) = Sample::new(|tree| fs::write(tree.join("a"), "a").unwrap()) else {
        return;
    };
    let image = sample.make(&[]);
    let mut file = File::options().append(true).open(&image).unwrap();
    file.write_all(&[0xff; 12_345]).unwrap();
    check_image(&sample, &image, &[], AS_IS);
}

#[test]
fn twenty_thousand_entries() {
    let names = |n: usize| format!("{n:x}-{}", "y".repeat(n % 90));
    let count = 20_000;
    let populate = |tree: &Path| {
        fs::create_dir(tree.join("many")).unwrap();
        for n in 0..count {
            fs::write(tree.join("many").join(names(n)), "").unwrap();
        }
    };
    let Some(sample) = Sample::new(populate) else {
        return;
    };
    let reader = reader(&sample.make(&[]), &[]);
    let fs = reader.fs();
    let dir = fs.lookup(fs.root(), b"many").unwrap().unwrap();
    check_names(fs, dir, (0..count).map(names).collect());
}

/// A chunk may continue on a device of unknown length. Its extents outside of the range must not be
/// visited: a plan would read and decode them again.
#[test]
fn a_chunk_that_goes_on_where_a_device_begins_is_mapped_and_read_in_parts() {
    const MIB: u64 = 1 << 20;
    let dir = temp_dir("erofs-split");
    let path = dir.path().join("image");
    // 8 MiB, split at 5 MiB.
    let bytes = with_split_chunk(14, 5 * 2048);
    fs::write(&path, &bytes).unwrap();
    let reader = reader(&path, &[]);
    let node = NodeId(nid::BLOCKS);
    let parts = |range: Range<u64>| {
        let mut parts = Vec::new();
        let mut visit = |extent: Extent| {
            let at = extent.logical.start;
            let (blob, offset) = (BlobId::IMAGE, 4096 + at);
            assert_eq!(extent.place, Place::Stored { blob, offset });
            parts.push(extent.logical);
            ControlFlow::Continue(())
        };
        reader.fs().map(node, range, &mut visit).unwrap();
        parts
    };
    let both = [0..5 * MIB, 5 * MIB..8 * MIB];
    assert_eq!(parts(0..8 * MIB), both);
    assert_eq!(parts(MIB..2 * MIB), both[..1]);
    assert_eq!(parts(5 * MIB - 1..5 * MIB), both[..1]);
    assert_eq!(parts(5 * MIB - 1..5 * MIB + 1), both);
    assert_eq!(parts(5 * MIB..6 * MIB), both[1..]);
    for at in (0..8 * MIB).step_by(128 << 10) {
        let start = usize::try_from(4096 + at).unwrap();
        let read = reader.read(node, at, 128 << 10).unwrap();
        assert!(read[..] == bytes[start..start + (128 << 10)], "{at}");
    }
    assert!(walk(&with_split_chunk(2, 3)).is_empty());
}
