//! fakeroot and pseudo: libraries that emulate root, for packing and extracting.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use forerun_testkit::require;

use crate::common::volume::as_nobody;
use crate::common::{Fixture, command, ran};

/// The emulators, as prefixes of the shell command.
const EMULATORS: [&str; 3] = ["fakeroot-sysv", "fakeroot-tcp", "pseudo"];

/// Makes a tree with entries that only root can make.
const PLANT: &str = "
mkdir plant plant/dir
echo hello > plant/file; chown 12:34 plant/file; chmod 4750 plant/file
ln plant/file plant/hard
mknod plant/char c 5 1; mknod plant/block b 8 4000; chown 0:6 plant/block; chmod 660 plant/block
mkfifo plant/fifo; chown 9:9 plant/fifo
ln -s file plant/link; chown -h 7:8 plant/link
chown 5:6 plant/dir; chmod 1777 plant/dir
mknod plant/dir/null c 1 3
setfattr -n user.name -v value plant/file
chown 3:4 plant; chmod 750 plant
";

/// Runs a script as a user in a session of an emulator, in a directory of the user.
fn in_session(emulator: &str, dir: &Path, script: &str) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let program = command(&["--version"]);
    let output = as_nobody(emulator)
        .args(["/bin/sh", "-e", "-c", script])
        .arg(program.get_program())
        .env("PSEUDO_PREFIX", "/usr")
        .env("PSEUDO_LOCALSTATEDIR", dir.join("pseudo"))
        .current_dir(dir)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{emulator}: {script}: {told}");
    // The libraries print warnings about failed calls.
    let is_of_library = |line: &&str| !line.starts_with("Warning: ");
    let lines: Vec<_> = told.lines().filter(is_of_library).collect();
    assert!(lines.is_empty(), "{emulator}: {script}: {lines:?}");
}

fn each(names: &[&str], check: impl Fn(&str, &Fixture)) {
    let needed = ["mksquashfs", "mkfs.erofs", "setfattr", "setpriv"];
    let mut needed = needed.iter().chain(&EMULATORS);
    if !require::root() || !needed.all(|name| require::program(name).is_some()) {
        return;
    }
    for emulator in EMULATORS {
        let fixture = Fixture::tree();
        fs::create_dir(fixture.path("bin")).unwrap();
        let forerun = command(&["--version"]);
        for name in names {
            symlink(forerun.get_program(), fixture.path("bin").join(name)).unwrap();
        }
        check(emulator, &fixture);
    }
}

#[test]
fn images_made_under_fakeroot_and_pseudo_are_those_of_root() {
    each(
        &["mksquashfs", "mkfs.erofs", "mkcomposefs"],
        |emulator, fixture| {
            let script = "
mksquashfs plant other.sqsh -quiet -no-progress
mkfs.erofs other.erofs plant > /dev/null
tar --xattrs -C plant -cf other.tar .
for name in own.sqsh own.erofs own.romfs; do \"$0\" pack -q plant $name; done
\"$0\" pack -q --format composefs --objects store plant own.cfs > /dev/null
\"$0\" pack -q other.tar tarred.sqsh
bin/mksquashfs plant named.sqsh -quiet -no-progress
bin/mkfs.erofs named.erofs plant > /dev/null
bin/mkcomposefs --digest-store=store plant named.cfs
";
            in_session(emulator, fixture.dir.path(), &[PLANT, script].concat());
            for (other, own) in [
                ("other.sqsh", "own.sqsh"),
                ("other.sqsh", "named.sqsh"),
                ("other.erofs", "own.erofs"),
                ("other.erofs", "named.erofs"),
                ("other.tar", "own.sqsh"),
                ("other.tar", "own.erofs"),
                ("other.tar", "tarred.sqsh"),
                ("own.erofs", "own.cfs"),
                ("own.erofs", "named.cfs"),
                ("other.sqsh", "own.romfs"),
            ] {
                let args = ["diff", "--objects", "store", other, own];
                let told = fixture.run(&args[..]);
                assert_eq!(told.text(), "", "{emulator}: {other} {own}");
                assert_eq!(
                    told.code,
                    Some(0),
                    "{emulator}: {other} {own}: {}",
                    told.stderr
                );
            }
        },
    );
}

#[test]
fn what_is_extracted_under_fakeroot_and_pseudo_is_seen_there() {
    each(&["unsquashfs"], |emulator, fixture| {
        let script = "
mksquashfs plant a.sqsh -quiet -no-progress
unsquashfs -quiet -no-progress -dest other a.sqsh
bin/unsquashfs -quiet -no-progress -dest named a.sqsh
\"$0\" extract -q --keep devices,special-bits -C own a.sqsh
for name in plant other named own; do
    (cd $name; ls -lnAR --time-style=+ .) > $name.list
done
";
        in_session(emulator, fixture.dir.path(), &[PLANT, script].concat());
        let list = |name: &str| fs::read_to_string(fixture.path(name)).unwrap();
        for name in ["named.list", "own.list"] {
            // Without the totals of blocks, which depend on how a tool writes.
            let lines = |text: String| {
                let lines = text.lines().map(str::to_string);
                lines
                    .filter(|line| !line.starts_with("total "))
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                lines(list(name)),
                lines(list("other.list")),
                "{emulator}: {name}"
            );
        }
    });
}

#[test]
fn other_commands_work_under_fakeroot_and_pseudo() {
    each(&[], |emulator, fixture| {
        let script = "
\"$0\" pack -q plant a.erofs
\"$0\" ls -lR a.erofs > /dev/null
\"$0\" check -q a.erofs
\"$0\" convert -q a.erofs a.sqsh
\"$0\" diff plant a.sqsh
\"$0\" info -v a.sqsh > info 2> /dev/null
";
        in_session(emulator, fixture.dir.path(), &[PLANT, script].concat());
        let info = fs::read_to_string(fixture.path("info")).unwrap();
        assert!(info.contains("is preloaded"), "{emulator}: {info}");
    });
}

#[test]
fn another_preloaded_library_leaves_the_sandbox_on() {
    let fixture = Fixture::tree();
    fixture.run(&["pack", "tree", "a.sqsh"]).ok();
    let mut info = fixture.command(&["info", "-v", "a.sqsh"]);
    let told = ran(info.env("LD_PRELOAD", "libc.so.6").output().unwrap());
    let told = told.text();
    assert!(told.contains("system calls allowed"), "{told}");
}
