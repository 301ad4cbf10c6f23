//! Archives made by GNU tar and by Python, compared with the source trees.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_io::{FileSource, Limits};
use forerun_tar::Tar;
use forerun_testkit::conformance::check_filesystem;

use forerun_testkit::{CountingSource, Keeps, Shape, TreeModel, require, temp_dir};
use forerun_vfs::FileSystem;

/// Makes an archive with GNU tar. Returns false if it is not installed.
fn tar(tree: &Path, archive: &Path, options: &[&str]) -> bool {
    let Some(program) = require::program("tar") else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(options).arg("-cf").arg(archive);
    let output = command.arg("-C").arg(tree).arg(".").output().unwrap();
    assert!(output.status.success(), "{options:?}: {output:?}");
    true
}

fn compare(tree: &Path, archive: &Path, what: &str) {
    let source = Arc::new(FileSource::open(archive).unwrap());
    let fs = Tar::open(Arc::<FileSource>::clone(&source), &Limits::default()).unwrap();
    check_filesystem(&fs, &Limits::default());
    assert_eq!(fs.volume().warnings, Vec::<String>::new(), "{what}");
    let actual = TreeModel::of_image(&fs, &*source).unwrap();
    let expected = TreeModel::of_host(tree).unwrap();
    expected.assert_same(&actual, &Keeps::EVERYTHING);
}

fn shapes(formats: &[&str], shapes: &[Shape]) {
    for shape in shapes {
        if shape.needs_root() && !require::root() {
            continue;
        }
        let dir = temp_dir("tar");
        let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive"));
        fs::create_dir(&tree).unwrap();
        shape.populate(&tree);
        // tar does not archive sockets.
        remove_sockets(&tree);
        for format in formats {
            if tar(&tree, &archive, &[&format!("--format={format}")]) {
                compare(&tree, &archive, format);
            }
        }
    }
}

pub fn remove_sockets(dir: &Path) {
    use std::os::unix::fs::FileTypeExt;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_socket() {
            fs::remove_file(entry.path()).unwrap();
        } else if kind.is_dir() {
            remove_sockets(&entry.path());
        }
    }
}

#[test]
fn gnu_and_posix_archives_read_as_their_trees() {
    let all = [
        Shape::Empty,
        Shape::Mixed,
        Shape::Deep,
        Shape::HardLinks,
        Shape::Devices,
        Shape::LongNames,
        Shape::OddLengths,
        Shape::Symlinks,
    ];
    shapes(&["gnu", "oldgnu", "posix"], &all);
}

#[test]
fn ustar_and_v7_archives_read_as_their_trees() {
    shapes(&["ustar", "v7"], &[Shape::Empty, Shape::OddLengths]);
    shapes(&["ustar"], &[Shape::Devices]);
}

#[test]
fn sparse_files_of_all_versions_read_as_their_trees() {
    let dir = temp_dir("tar");
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive"));
    fs::create_dir(&tree).unwrap();
    for (name, pieces, len) in [
        ("few", 3, 1 << 20),
        ("many", 100, 8 << 20),
        ("hole", 0, 99_999),
    ] {
        let file = File::create(tree.join(name)).unwrap();
        for piece in 0..pieces {
            file.write_all_at(b"piece", piece * 65_536 + 7).unwrap();
        }
        file.set_len(len).unwrap();
    }
    let pax = |version| ["--format=posix", "--sparse", version];
    for options in [
        &["--format=gnu", "--sparse"][..],
        &["--format=oldgnu", "--sparse"],
        &pax("--sparse-version=0.0"),
        &pax("--sparse-version=0.1"),
        &pax("--sparse-version=1.0"),
    ] {
        if tar(&tree, &archive, options) {
            assert!(
                fs::metadata(&archive).unwrap().len() < 2 << 20,
                "{options:?}"
            );
            compare(&tree, &archive, &format!("{options:?}"));
        }
    }
}

#[test]
fn archives_of_python_read_as_their_trees() {
    let dir = temp_dir("tar");
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive"));
    fs::create_dir(&tree).unwrap();
    Shape::Mixed.populate(&tree);
    let Some(program) = require::program("python3") else {
        return;
    };
    for format in ["PAX", "GNU"] {
        let script = format!(
            "import sys,tarfile\nt=tarfile.open(sys.argv[2],'w',format=tarfile.{format}_FORMAT)\n\
             t.add(sys.argv[1],'.')\nt.close()"
        );
        let mut command = Command::new(&program);
        let output = command
            .args(["-c", &script])
            .args([&tree, &archive])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        compare(&tree, &archive, format);
    }
}

#[test]
fn opening_reads_each_header_once_and_no_data() {
    let dir = temp_dir("tar");
    let (tree, archive) = (dir.path().join("tree"), dir.path().join("archive"));
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), vec![1; 1 << 20]).unwrap();
    }
    if !tar(&tree, &archive, &["--format=ustar", "-b", "1"]) {
        return;
    }
    let source = Arc::new(CountingSource::new(FileSource::open(&archive).unwrap()));
    Tar::open(Arc::<CountingSource<_>>::clone(&source), &Limits::default()).unwrap();
    // The root, three files, and two blocks of zeros.
    assert_eq!((source.reads(), source.bytes()), (6, 6 * 512));
}
