//! `mkcomposefs`, `mount.composefs` and `composefs-info`. Debian 12 has none of them, so their
//! documented output is expected. The tests of the format compare digests with mkcomposefs 1.0.8.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use forerun_testkit::require;
use rustix::fs::XattrFlags;

use super::{By, Names, is_mounted};
use crate::common::{Ran, command, ran};

fn names() -> Option<Names> {
    let names = Names::new(&[])?;
    let forerun = command(&["--version"]);
    for name in ["mkcomposefs", "mount.composefs", "composefs-info"] {
        symlink(forerun.get_program(), names.path("bin").join(name)).unwrap();
    }
    Some(names)
}

fn run(names: &Names, line: &str) -> Ran {
    let words: Vec<_> = line.split(' ').collect();
    names.run(By::Forerun, ".", &words)
}

#[test]
fn images_are_made_and_listed() {
    let Some(names) = names() else {
        return;
    };
    let made = run(
        &names,
        "mkcomposefs --digest-store=store --print-digest tree a.cfs",
    );
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let digest = made.text().trim().to_string();
    let only = run(&names, "mkcomposefs --print-digest-only tree");
    assert_eq!(only.text().trim(), digest);
    let measured = run(&names, "composefs-info measure-file a.cfs");
    assert_eq!(measured.text().trim(), digest);
    let wide = "mkcomposefs --digest=sha512 --digest-store=wide --print-digest tree w.cfs";
    let wide = run(&names, wide).text().trim().to_string();
    let measured = run(&names, "composefs-info --digest=sha512 measure-file w.cfs");
    assert_eq!((wide.len(), measured.text().trim()), (128, &*wide));
    let packed = "pack --format composefs --objects store2 --force tree b.cfs";
    let words: Vec<_> = packed.split(' ').collect();
    let packed = ran(command(&words)
        .current_dir(names.path("."))
        .output()
        .unwrap());
    assert_eq!(packed.text().trim(), digest);

    let objects = run(&names, "composefs-info objects a.cfs b.cfs");
    let objects: Vec<_> = objects.text().lines().map(str::to_string).collect();
    let [object] = objects.as_slice() else {
        panic!("{objects:?}");
    };
    let missing = "composefs-info --basedir=store missing-objects a.cfs";
    assert_eq!(run(&names, missing).text(), "");
    let listed = run(&names, "composefs-info ls a.cfs");
    for line in [
        "/etc/\t",
        "/etc/passwd",
        "/AppRun\t-> usr/bin/tool",
        &format!("/usr/bin/tool\t@ {object}"),
    ] {
        assert!(
            listed.text().lines().any(|listed| listed == line),
            "{line}: {}",
            listed.text()
        );
    }
    fs::remove_file(names.path("store").join(object)).unwrap();
    assert_eq!(run(&names, missing).text().trim(), object);

    let epoch = run(
        &names,
        "mkcomposefs --use-epoch --skip-xattrs --skip-devices tree c.cfs",
    );
    assert_eq!((epoch.code, epoch.text()), (Some(0), ""));
    let listing = ran(command(&["ls", "-lR"])
        .arg(names.path("c.cfs"))
        .output()
        .unwrap());
    let entries = listing.text().lines().filter(|line| line.len() > 30);
    assert!(
        entries.clone().count() > 5 && entries.clone().all(|line| line.contains(" 1970-01-01 "))
    );
}

/// The image of a dump must equal that of the reference implementation.
#[test]
fn images_are_made_of_dumps() {
    let Some(names) = names() else {
        return;
    };
    let golden = include_str!("../../../../../formats/composefs/tests/it/golden/digests.txt");
    let digest = golden
        .lines()
        .find_map(|line| line.strip_prefix("every_kind 0 1 "));
    let dump = include_str!("../../../../../formats/composefs/tests/it/golden/every_kind.dump");
    fs::write(names.path("a.dump"), dump).unwrap();
    // Options about directories have no effect.
    for line in [
        "mkcomposefs --from-file --print-digest a.dump d.cfs",
        "mkcomposefs --from-file --print-digest --skip-devices --digest-store=no a.dump e.cfs",
    ] {
        let made = run(&names, line);
        assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
        assert_eq!(Some(made.text().trim()), digest);
    }
    assert!(!names.path("no").exists());
    let only = run(&names, "mkcomposefs --from-file --print-digest-only a.dump");
    assert_eq!(Some(only.text().trim()), digest);

    fs::write(names.path("b.dump"), format!("{dump}/x 0 100644")).unwrap();
    fs::write(names.path("d.cfs"), "before").unwrap();
    let refused = run(&names, "mkcomposefs --from-file b.dump d.cfs");
    let line = dump.lines().count() + 1;
    let expected = format!("mkcomposefs: b.dump: line {line}: the field nlink is missing\n");
    assert_eq!((refused.code, refused.stderr), (Some(1), expected));
    assert_eq!(fs::read(names.path("d.cfs")).unwrap(), b"before");
}

#[test]
fn skipped_devices_include_whiteouts() {
    let Some(names) = names().filter(|_| require::root()) else {
        return;
    };
    fs::create_dir(names.path("devices")).unwrap();
    for (name, minor) in [("gone", 0), ("null", 3)] {
        let path = names.path("devices").join(name);
        let major = u32::from(minor > 0);
        let device = rustix::fs::makedev(major, minor);
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, device).unwrap();
    }
    let listed = |options: &str| {
        let made = run(&names, &format!("mkcomposefs {options}devices w.cfs"));
        assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
        run(&names, "composefs-info ls w.cfs").text().to_string()
    };
    assert_eq!(listed(""), "/gone\n/null\n");
    assert_eq!(listed("--skip-devices "), "");
}

/// The expected text is the output of composefs-info, built from the composefs sources, for the
/// same tree.
#[test]
fn listed_names_are_escaped() {
    let Some(names) = names() else {
        return;
    };
    let dir = names.path("names");
    fs::create_dir_all(dir.join("a b")).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"new\nline\\\xff=\x1b");
    fs::write(dir.join("a b").join(name), "x").unwrap();
    symlink("to where", dir.join("l")).unwrap();
    run(&names, "mkcomposefs names n.cfs").ok();
    let below = "/a b/\t\n/a b/new\\nline\\\\\\xff=\\x1b\n";
    let listed = run(&names, "composefs-info ls n.cfs");
    assert_eq!(listed.text(), format!("{below}/l\t-> to\\x20where\n"));
    let words = ["composefs-info", "--filter=a b", "ls", "n.cfs"];
    assert_eq!(names.run(By::Forerun, ".", &words).text(), below);
}

/// The expected lines are those of composefs-info 1.0.8 for images that mkcomposefs 1.0.8 made of the same dumps; our
/// images of them have the same bytes.
#[test]
fn an_image_is_dumped_as_by_composefs_info() {
    let Some(names) = names() else {
        return;
    };
    for (version, dump, expected) in [
        (
            0,
            include_str!("../../../../../formats/composefs/tests/it/golden/every_kind.dump"),
            include_str!("../../../../../formats/composefs/tests/it/golden/every_kind.dumped"),
        ),
        (
            0,
            include_str!("../../../../../formats/composefs/tests/it/golden/shared_attributes.dump"),
            include_str!(
                "../../../../../formats/composefs/tests/it/golden/shared_attributes.dumped"
            ),
        ),
        (
            1,
            include_str!("../../../../../formats/composefs/tests/it/golden/whiteouts.dump"),
            include_str!("../../../../../formats/composefs/tests/it/golden/whiteouts.dumped"),
        ),
    ] {
        // Neither Linux nor forerun shows attributes outside the name spaces.
        let dump = &dump.replace(" lustre.lov=2 foo.bar=3", "");
        let expected = &expected.replace(" foo.bar=3 lustre.lov=2", "");
        fs::write(names.path("in.dump"), dump).unwrap();
        let make = format!("mkcomposefs --from-file --min-version={version}");
        run(&names, &format!("{make} in.dump a.cfs")).ok();
        let dumped = run(&names, "composefs-info dump a.cfs");
        assert_eq!((dumped.code, dumped.text()), (Some(0), &**expected));
        fs::write(names.path("out.dump"), expected).unwrap();
        run(&names, &format!("{make} out.dump b.cfs")).ok();
        let [a, b] = ["a.cfs", "b.cfs"].map(|name| fs::read(names.path(name)).unwrap());
        assert!(a == b, "{dump}");
    }
    let words = ["composefs-info", "--filter=dir", "dump", "a.cfs"];
    let filtered = names.run(By::Forerun, ".", &words);
    assert!(filtered.text().starts_with("/ 4096 40755 "));
    let paths = filtered.text().lines().skip(1);
    assert!(paths.clone().count() > 1 && paths.clone().all(|line| line.starts_with("/dir")));

    // SHA-512, as cfsctl prints it; names and contents that are escaped.
    let wide = "ab".repeat(64);
    let text = format!(
        "/ 0 40755 2 0 0 0 5.0 - - -\n/-\\x20\\n 300 100644 1 1 2 0 -5.6 {}/{} - {wide}\n\
         /d 1 100644 2 0 0 0 5.0 - \\x2d - user.a\\x3d=\\x3d\\x00\n/l 1 @100644 2 0 0 0 5.0 /d \\x2d - user.a\\x3d=\\x3d\\x00\n",
        &wide[..2],
        &wide[2..],
    );
    fs::write(names.path("in.dump"), &text).unwrap();
    run(
        &names,
        "mkcomposefs --from-file --digest=sha512 in.dump a.cfs",
    )
    .ok();
    let dumped = run(&names, "composefs-info dump a.cfs");
    assert_eq!(dumped.text(), text.replacen(" 0 40755", " 4096 40755", 1));
}

/// The program of composefs has the kernel mount all; with a writable layer, forerun does too.
#[test]
fn several_base_directories_and_a_writable_layer_are_mounted() {
    let Some(names) = names() else {
        return;
    };
    if !require::root() || !require::fuse() {
        return;
    }
    for store in ["s,1", "s2"] {
        run(
            &names,
            &format!("mkcomposefs --digest-store={store} tree a.cfs"),
        )
        .ok();
    }
    // Each store has one half of the files that the image needs.
    let objects = run(&names, "composefs-info objects a.cfs")
        .text()
        .to_string();
    for (n, object) in objects.lines().enumerate() {
        let store = ["s,1", "s2"][n % 2];
        fs::remove_file(names.path(store).join(object)).unwrap();
    }
    for name in ["mnt", "upper", "work"] {
        fs::create_dir(names.path(name)).unwrap();
    }
    let tool = || fs::read(names.path("mnt/usr/bin/tool")).unwrap();
    let expected = fs::read(names.path("tree/usr/bin/tool")).unwrap();
    let mount = |more: &str| {
        run(
            &names,
            &format!("mount.composefs -o basedir=s\\,1:s2{more} a.cfs mnt"),
        )
    };
    mount("").ok();
    assert_eq!(tool(), expected);
    ran(command(&["umount"])
        .arg(names.path("mnt"))
        .output()
        .unwrap())
    .ok();
    let mounted = mount(",upperdir=upper,workdir=work");
    if require::that(mounted.code == Some(0), "kernel mounts of composefs") {
        assert_eq!(tool(), expected);
        fs::write(names.path("mnt/new"), "new").unwrap();
        ran(command(&["umount"])
            .arg(names.path("mnt"))
            .output()
            .unwrap())
        .ok();
        assert_eq!(fs::read(names.path("upper/new")).unwrap(), b"new");
    }
    let refused = mount(",upperdir=upper");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
}

#[test]
fn a_store_that_is_not_there_is_no_empty_store() {
    let Some(names) = names() else {
        return;
    };
    run(&names, "mkcomposefs --digest-store=store tree a.cfs").ok();
    for (store, reason) in [
        ("none", "No such file or directory"),
        ("a.cfs", "Not a directory"),
    ] {
        let line = format!("composefs-info --basedir={store} missing-objects a.cfs");
        let refused = run(&names, &line);
        assert_eq!((refused.code, refused.text()), (Some(1), ""));
        let expected = format!("composefs-info: {store}: {reason}\n");
        assert_eq!(refused.stderr, expected);
    }
}

/// Checks paths with commas, and that a digest makes the program check the objects too.
#[test]
fn a_digest_vouches_for_the_objects() {
    let Some(names) = names() else {
        return;
    };
    if !require::root() || !require::fuse() {
        return;
    }
    let made = run(
        &names,
        "mkcomposefs --digest-store=s,t --print-digest tree a.cfs",
    );
    let digest = made.text().trim().to_string();
    fs::create_dir(names.path("mnt")).unwrap();
    let line = format!("mount.composefs -o basedir=s\\,t,digest={digest} a.cfs mnt");
    let read = || {
        let mounted = run(&names, &line);
        assert_eq!((mounted.code, mounted.stderr.as_str()), (Some(0), ""));
        let read = fs::read(names.path("mnt/usr/bin/tool"));
        assert!(forerun_testkit::unmount(&names.path("mnt")));
        read
    };
    assert_eq!(read().unwrap().len(), 300_000);
    let objects = run(&names, "composefs-info objects a.cfs");
    let object = names.path("s,t").join(objects.text().trim());
    let mut bytes = fs::read(&object).unwrap();
    bytes[99] ^= 1;
    fs::write(&object, bytes).unwrap();
    read().unwrap_err();
}

#[test]
fn images_are_mounted_with_their_objects() {
    let Some(names) = names() else {
        return;
    };
    if !require::root() || !require::fuse() {
        return;
    }
    let made = run(
        &names,
        "mkcomposefs --digest-store=store --print-digest tree a.cfs",
    );
    let digest = made.text().trim().to_string();
    fs::create_dir(names.path("mnt")).unwrap();
    let line = format!("mount.composefs a.cfs mnt -o basedir=store,verity,digest={digest},ro");
    let mounted = run(&names, &line);
    assert_eq!((mounted.code, mounted.stderr.as_str()), (Some(0), ""));
    assert!(is_mounted(&names.path("mnt")));
    assert_eq!(
        fs::read(names.path("mnt/usr/bin/tool")).unwrap().len(),
        300_000
    );
    assert!(forerun_testkit::unmount(&names.path("mnt")));
    let other = digest.replace(['0', '1', '2', '3'], "4");
    for line in [
        &format!("mount.composefs -o basedir=store,digest={other} a.cfs mnt"),
        "mount.composefs -o basedir=store none mnt",
        "mount.composefs -o basedir=store,upperdir=u a.cfs mnt",
        "mount.composefs -o basedir=store,bogus a.cfs mnt",
        "mount.composefs a.cfs",
        "mount.composefs -o basedir=none a.cfs mnt",
    ] {
        let refused = run(&names, line);
        assert_eq!(refused.code, Some(1), "{line}: {}", refused.stderr);
        assert!(
            refused.stderr.starts_with("mount.composefs: "),
            "{}",
            refused.stderr
        );
        assert!(!is_mounted(&names.path("mnt")), "{line}");
    }
}

#[test]
fn mistakes_are_named() {
    let Some(names) = names() else {
        return;
    };
    for (line, expected) in [
        (
            "mkcomposefs tree",
            "mkcomposefs: No destination path specified",
        ),
        (
            "mkcomposefs none a.cfs",
            "mkcomposefs: none: No such file or directory",
        ),
        (
            "mkcomposefs --from-file none a.cfs",
            "mkcomposefs: none: No such file or directory",
        ),
        (
            "mkcomposefs a.sqsh a.cfs",
            "mkcomposefs: a.sqsh: is not a directory",
        ),
        ("composefs-info", "composefs-info: No command specified"),
        (
            "composefs-info dumps a.cfs",
            "composefs-info: Unknown command 'dumps'",
        ),
        ("composefs-info ls a.sqsh", "composefs-info: a.sqsh: "),
        ("composefs-info ls none", "composefs-info: none: "),
        (
            "composefs-info --filter=a/b ls a.cfs",
            "composefs-info: Filter must be a single name: a/b",
        ),
        (
            "mount.composefs a.cfs mnt",
            "mount.composefs: No object dirs specified",
        ),
        ("composefs-info measure-file none", "composefs-info: none: "),
    ] {
        let refused = run(&names, line);
        assert_eq!(refused.code, Some(1), "{line}");
        assert!(
            refused.stderr.starts_with(expected),
            "{line}: {}",
            refused.stderr
        );
    }
    for line in [
        "mkcomposefs --help",
        "composefs-info --help",
        "mount.composefs --help",
    ] {
        assert_eq!(run(&names, line).code, Some(0), "{line}");
    }
}

/// A script must not mistake an image for complete if its objects are not understood.
#[test]
fn objects_of_other_names_are_listed() {
    let Some(names) = names().filter(|_| require::root()) else {
        return;
    };
    let stub = |digits: &str, redirect: &str| {
        fs::remove_dir_all(names.path("stubs")).ok();
        fs::create_dir(names.path("stubs")).unwrap();
        let file = fs::File::create(names.path("stubs/f")).unwrap();
        file.set_len(1000).unwrap();
        let bytes =
            (0..digits.len() / 2).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16));
        let digest: Vec<u8> = bytes.collect::<Result<_, _>>().unwrap();
        let algorithm = if digest.len() == 64 { 2 } else { 1 };
        let head = [0, 4 + u8::try_from(digest.len()).unwrap(), 0, algorithm];
        let set = |name: &str, value: &[u8]| {
            rustix::fs::setxattr(names.path("stubs/f"), name, value, XattrFlags::empty()).unwrap();
        };
        set(
            "trusted.overlay.metacopy",
            &[&head, digest.as_slice()].concat(),
        );
        set("trusted.overlay.redirect", redirect.as_bytes());
        let pack = [
            "pack", "-q", "--force", "--format", "erofs", "stubs", "s.cfs",
        ];
        ran(command(&pack)
            .current_dir(names.path("."))
            .output()
            .unwrap())
        .ok();
    };
    fs::create_dir(names.path("store")).unwrap();
    let digits = "0123456789abcdef".repeat(8);
    let object = format!("01/{}", &digits[2..]);
    stub(&digits, &format!("/{object}"));
    for line in [
        "composefs-info objects s.cfs",
        "composefs-info --basedir=store missing-objects s.cfs",
    ] {
        let listed = run(&names, line);
        assert_eq!(
            (listed.code, listed.text().trim()),
            (Some(0), object.as_str()),
            "{line}"
        );
    }
    let ls = run(&names, "composefs-info ls s.cfs");
    assert!(
        ls.text().contains(&format!("/f\t@ {object}")),
        "{}",
        ls.text()
    );
    fs::create_dir_all(names.path("store/a b")).unwrap();
    fs::write(names.path("store/a b/c"), "").unwrap();
    symlink("a b", names.path("store/link")).unwrap();
    for (path, is_missing) in [
        ("objects/x", true),
        ("../a.cfs", true),
        ("a b/c", false),
        ("a b/c/d", true),
        ("link/c", true),
    ] {
        stub(&digits[..64], &format!("/{path}"));
        let listed = run(&names, "composefs-info objects s.cfs");
        assert_eq!(listed.text(), format!("{path}\n"));
        let listed = run(&names, "composefs-info ls s.cfs");
        assert_eq!(
            listed.text(),
            format!("/f\t@ {}\n", path.replace(' ', "\\x20"))
        );
        let line = "composefs-info --basedir=store missing-objects s.cfs";
        assert_eq!(!run(&names, line).text().is_empty(), is_missing, "{path}");
    }
}
