//! Directories that `forerun run --overlay DIR` does not trust.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::run::{NOBODY, Place};

const OPTIONS: [&str; 3] = ["--overlay", "kept", "../a.sqsh"];

/// Makes a directory that belongs to the place's user or to another user.
fn make(place: &Place, name: &str, mode: u32, is_own: bool) -> PathBuf {
    let path = place.path("work").join(name);
    fs::DirBuilder::new().mode(mode).create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let owner = match (place.is_root, is_own) {
        (true, true) => 0,
        (false, true) => NOBODY,
        (_, false) => 1000,
    };
    chown(&path, Some(owner), Some(owner)).unwrap();
    path
}

#[test]
fn an_overlay_that_other_users_may_enter_is_refused() {
    for place in Place::of_each() {
        for mode in [0o755, 0o710, 0o701] {
            let kept = make(&place, "kept", mode, true);
            place.run(&OPTIONS, &["true"]).fails(
                5,
                "forerun: kept: other users can enter it, and run set-user-ID files in it with your rights\n  \
                 hint: close it: chmod 700 kept",
            );
            assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
            fs::set_permissions(&kept, fs::Permissions::from_mode(0o700)).unwrap();
            place.run(&OPTIONS, &["true"]).ok();
            fs::remove_dir_all(&kept).unwrap();
        }
    }
}

#[test]
fn an_overlay_of_another_user_is_refused() {
    for place in Place::of_each() {
        let is_other = |path: &str| {
            format!(
                "forerun: {path}: belongs to another user\n  \
                 hint: name a new directory, or an empty one of yours"
            )
        };
        let kept = make(&place, "kept", 0o755, false);
        place.run(&OPTIONS, &["true"]).fails(5, &is_other("kept"));
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
        fs::remove_dir_all(&kept).unwrap();
        for layer in ["upper", "work"] {
            let kept = make(&place, "kept", 0o700, true);
            make(&place, &format!("kept/{layer}"), 0o755, false);
            let told = place.run(&OPTIONS, &["true"]);
            told.fails(5, &is_other(&format!("kept/{layer}")));
            fs::remove_dir_all(&kept).unwrap();
        }
    }
}

#[test]
fn layers_of_an_overlay_that_are_links_are_refused() {
    for place in Place::of_each() {
        let victim = make(&place, "victim", 0o700, true);
        fs::write(victim.join("secret"), "secret\n").unwrap();
        for layer in ["upper", "work"] {
            let kept = make(&place, "kept", 0o700, true);
            symlink(&victim, kept.join(layer)).unwrap();
            let told = place.sh(&OPTIONS, "cat /secret; echo changed > /secret");
            told.fails(
                5,
                &format!(
                    "forerun: kept/{layer}: is not a directory\n  \
                     hint: name a new directory, or an empty one of yours"
                ),
            );
            assert_eq!(names(&victim), ["secret"]);
            fs::remove_dir_all(&kept).unwrap();
        }
        assert_eq!(
            fs::read_to_string(victim.join("secret")).unwrap(),
            "secret\n"
        );
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}
