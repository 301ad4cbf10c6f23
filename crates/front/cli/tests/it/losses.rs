//! Reports what a new image cannot keep, and gives no user more rights.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use forerun_testkit::require;

use crate::common::{Fixture, command, ran};

/// Packs a tree with two access control lists as EROFS, which keeps them. Returns `None` if setfacl
/// or support by the filesystem is missing.
fn with_acls() -> Option<Fixture> {
    require::program("setfacl")?;
    let fixture = Fixture::tree();
    for (name, mode) in [("bin/tool", 0o640), ("etc/empty", 0o750)] {
        let path = fixture.path("tree").join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let set = Command::new("setfacl")
            .args(["-m", "u:7:rwx"])
            .arg(path)
            .status();
        assert!(set.unwrap().success());
    }
    fixture.run(&["pack", "tree", "a.erofs"]).ok();
    Some(fixture)
}

fn modes(fixture: &Fixture, image: &str) -> [String; 2] {
    let listing = fixture.run(&["ls", "-lR", "--json", image]).ok().json();
    let mode = |path: &str| {
        let mut entries = listing.as_array().unwrap().iter();
        let entry = entries.find(|entry| entry["path"] == path).unwrap();
        entry["mode"].as_str().unwrap().to_string()
    };
    ["/bin/tool", "/etc/empty"].map(mode)
}

#[test]
fn lost_access_control_lists_are_told_and_leave_the_group_its_own_rights() {
    let Some(fixture) = with_acls() else { return };
    assert_eq!(modes(&fixture, "a.erofs"), ["0670", "0770"]);
    let own = ["0640", "0750"];
    let told = "squashfs cannot store everything: 2 entries lose their access control lists (/bin/tool, ...)";
    for args in [
        &["pack", "tree", "a.sqsh"][..],
        &["convert", "a.erofs", "b.sqsh"],
    ] {
        let ran = fixture.run(args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
        assert_eq!(modes(&fixture, args[2]), own);
    }
    // If the user excludes the lists, nothing is reported.
    for args in [
        &["pack", "--no-xattrs", "tree", "c.erofs"][..],
        &["pack", "--no-xattrs", "tree", "c.sqsh"],
        &["pack", "--xattrs-exclude", "^system", "tree", "d.erofs"],
        &["convert", "--no-xattrs", "a.erofs", "e.erofs"],
    ] {
        let ran = fixture.run(args).ok();
        assert_eq!(ran.stderr, "");
        assert_eq!(modes(&fixture, args[args.len() - 1]), own);
    }
    let told = fixture.run(&["pack", "tree", "f.romfs"]).stderr;
    assert!(
        told.contains("2 entries lose their access control lists"),
        "{told}"
    );
}

#[test]
fn the_names_of_other_programs_tell_of_lost_access_control_lists() {
    let Some(fixture) = with_acls() else { return };
    let forerun = command(&["--version"]);
    let program = |name: &str, args: &[&str]| {
        let path = fixture.path(name);
        symlink(forerun.get_program(), &path).unwrap();
        let mut program = Command::new(path);
        let told = program.args(args).current_dir(fixture.dir.path()).output();
        let ran = ran(told.unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr
    };
    let told = program("mksquashfs", &["tree", "a.sqsh", "-quiet", "-no-progress"]);
    assert!(
        told.contains("2 entries lose their access control lists"),
        "{told}"
    );
    assert_eq!(modes(&fixture, "a.sqsh"), ["0640", "0750"]);
    let told = program("mkfs.erofs", &["-x-1", "b.erofs", "tree"]);
    assert_eq!(told, "");
    assert_eq!(modes(&fixture, "b.erofs"), ["0640", "0750"]);
}

#[test]
fn an_attribute_without_a_name_is_told_by_every_writer() {
    let fixture = Fixture::tree();
    let named = [
        ("SCHILY.xattr.user.", &b"b"[..]),
        ("SCHILY.xattr.trusted.", b"c"),
        ("SCHILY.xattr.user.kept", b"d"),
    ];
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_pax_extensions(named).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(1);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive.append_data(&mut header, "file", &b"x"[..]).unwrap();
    fs::write(fixture.path("a.tar"), archive.into_inner().unwrap()).unwrap();
    for format in ["squashfs", "erofs", "composefs", "romfs", "exfat"] {
        for command in ["pack", "convert"] {
            let args = &[command, "--format", format, "--force", "a.tar", "a.img"];
            let store: &[&str] = match format {
                "composefs" => &["--objects", "store"],
                _ => &[],
            };
            let ran = fixture.run(&[&args[..], store].concat());
            assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
            let told = "1 entry loses extended attributes of trusted. and of user.";
            assert!(ran.stderr.contains(told), "{args:?}: {}", ran.stderr);
            if !["romfs", "exfat"].contains(&format) {
                fixture.run(&["check", "--quick", "a.img"]).ok();
                let dumped = fixture
                    .run(&[&["tar", "a.img"], store].concat())
                    .ok()
                    .stdout;
                let has = |name: &[u8]| dumped.windows(name.len()).any(|found| found == name);
                assert!(has(b"SCHILY.xattr.user.kept=d"), "{args:?}");
                assert!(!has(b"SCHILY.xattr.user.="), "{args:?}");
            }
        }
    }
}
