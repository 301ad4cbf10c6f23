//! Which crate may depend on which: the direction of the data flow, from source to front end.
//!
//! The directory of a crate decides what it may depend on. A crate in a directory without a row is
//! a violation, so that every new crate gets its place. A new format is a directory in
//! `crates/formats` and needs no new row.

use super::tree::{Dependency, Package};

/// Directories below `crates`, of which the first match counts, and the rows on which their crates
/// may depend, except in tests.
const ROWS: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("io", &[]),
    ("codec", &[]),
    ("vfs", &["io", "codec"]),
    ("disk", &["io", "codec", "vfs"]),
    ("build", &["io", "codec", "vfs"]),
    ("engine", &["io", "codec", "vfs"]),
    ("spans", &["io", "codec", "vfs"]),
    ("layers", &["io", "codec", "vfs"]),
    ("formats/*", &["io", "codec", "vfs", "build", "spans"]),
    ("store/cache", &["io"]),
    ("store/remote", &["io", "store/cache"]),
    (
        "forerun",
        &[
            BASE,
            "layers",
            "disk",
            "formats/*",
            "store/cache",
            "store/remote",
        ],
    ),
    ("front/sandbox", &[]),
    ("front/runtime", &["io", "codec", "vfs", "formats/*"]),
    ("front/console", PROGRAM),
    ("front/compat", PROGRAM),
    ("front/cli", PROGRAM),
    ("front/c", PROGRAM),
    ("front/*", &[BASE, "forerun"]),
    ("test/kit", &[BASE]),
    ("test/servers", &[BASE, "test/kit"]),
    ("test/fuzzing", &[ANY]),
    ("python", PROGRAM),
    ("xtask", &[ANY]),
    ("fuzz", &[ANY]),
];
/// The rows on which front ends and tests build directly.
const BASE: &str = "base";
const BASE_ROWS: &[&str] = &["io", "codec", "vfs", "build", "engine", "spans"];
const ANY: &str = "any";
const PROGRAM: &[&str] = &[
    BASE,
    "forerun",
    "front/*",
    "front/sandbox",
    "front/console",
    "front/compat",
];

/// Crates that speak a network protocol, bring a runtime for it, or speak FUSE, and the crates that
/// may use each.
const EXTERNAL: &[(&[&str], &[&str], &str)] = &[
    (
        &["tokio", "tonic"],
        &["forerun-remote", "forerun-snapshotter"],
        "only forerun-remote opens sockets",
    ),
    (
        &[
            "aws-sdk-s3",
            "curl",
            "h2",
            "hyper",
            "hyper-util",
            "isahc",
            "mio",
            "native-tls",
            "oci-client",
            "object_store",
            "openssl",
            "reqwest",
            "rustls",
            "smol",
            "socket2",
            "ureq",
        ],
        &["forerun-remote"],
        "only forerun-remote opens sockets",
    ),
    (
        &["fuse", "fuse-backend-rs", "fuse3", "fuser", "polyfuse"],
        &["forerun-fuse"],
        "only forerun-fuse knows FUSE",
    ),
];

/// Finds all dependencies in the wrong direction.
pub fn check(packages: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages {
        let Some((row, on)) = row_of(&package.dir) else {
            violations.push(format!(
                "{}: lies in a folder without a row in arrows.rs",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(reason) = refused(package, (row, on), dependency) {
                let (name, on) = (&package.name, &dependency.name);
                violations.push(format!("{name}: depends on {on}: {reason}"));
            }
        }
    }
    violations
}

fn row_of(dir: &str) -> Option<(&'static str, &'static [&'static str])> {
    let below = dir.strip_prefix("crates/").unwrap_or(dir);
    let fits = |row: &str| match row.strip_suffix('*') {
        Some(parent) => below
            .strip_prefix(parent)
            .is_some_and(|name| !name.contains('/')),
        None => row == below,
    };
    ROWS.iter().copied().find(|(row, _)| fits(row))
}

fn refused(
    package: &Package,
    (row, allowed): (&str, &[&str]),
    dependency: &Dependency,
) -> Option<&'static str> {
    let Some(dir) = &dependency.dir else {
        let of_crate = EXTERNAL
            .iter()
            .find(|(names, ..)| names.contains(&dependency.name.as_str()))?;
        return (!of_crate.1.contains(&package.name.as_str())).then_some(of_crate.2);
    };
    let Some((on, _)) = row_of(dir) else {
        return Some("lies in a folder without a row in arrows.rs");
    };
    let is_base = allowed.contains(&BASE) && BASE_ROWS.contains(&on);
    // The metadata of a composefs image is an EROFS image.
    let is_built_upon =
        (&*package.dir, &**dir) == ("crates/formats/composefs", "crates/formats/erofs");
    if on == "sys" && row != "sys"
        || allowed.iter().any(|name| [ANY, on].contains(name))
        || is_base
        || is_built_upon
        || package.dir == *dir
    {
        return None;
    }
    // Tests may use crates of the same and higher rows, but a front end may never use a driver.
    let is_front = |row: &str| row == "python" || row.starts_with("front/");
    match (row, on) {
        (row, "formats/*") if is_front(row) => {
            Some("a front end knows no driver; go through the crate forerun")
        }
        ("formats/*", on) if is_front(on) => Some("a driver knows no front end"),
        ("formats/*", "formats/*") => Some("a driver knows no other driver"),
        _ if dependency.dev => None,
        _ => Some("this arrow points against the data flow"),
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (package, dependency, sound) in [
            ("crates/front/fuse", "crates/vfs", true),
            ("crates/front/fuse", "crates/forerun", true),
            ("crates/front/fuse", "fuser", true),
            ("crates/forerun", "crates/formats/romfs", true),
            ("crates/formats/composefs", "crates/formats/erofs", true),
            ("crates/store/remote", "reqwest", true),
            ("crates/formats/romfs", "crates/build", true),
            ("crates/formats/romfs", "dev:crates/forerun", true),
            ("crates/io", "dev:crates/test/kit", true),
            ("crates/test/servers", "crates/test/kit", true),
            ("xtask", "crates/test/kit", true),
            // A front end imports a driver, also in tests.
            ("crates/front/fuse", "crates/formats/romfs", false),
            ("crates/front/export", "crates/formats/squashfs", false),
            ("crates/front/cli", "crates/formats/erofs", false),
            ("crates/front/kernel", "crates/formats/exfat", false),
            ("crates/front/python", "crates/formats/composefs", false),
            ("crates/front/cli", "dev:crates/formats/romfs", false),
            // A driver imports a front end or another driver.
            ("crates/formats/romfs", "crates/front/fuse", false),
            ("crates/formats/romfs", "crates/formats/squashfs", false),
            ("crates/formats/erofs", "crates/formats/composefs", false),
            // Against the data flow.
            ("crates/formats/romfs", "crates/engine", false),
            ("crates/build", "crates/engine", false),
            ("crates/io", "crates/vfs", false),
            ("crates/vfs", "crates/engine", false),
            ("crates/engine", "crates/forerun", false),
            ("crates/engine", "crates/test/kit", false),
            ("crates/test/kit", "crates/test/servers", false),
            ("crates/formats/romfs", "crates/forerun", false),
            ("crates/store/remote", "crates/engine", false),
            // External crates that only one crate may use.
            ("crates/engine", "tokio", false),
            ("crates/front/snapshotter", "tokio", true),
            ("crates/front/snapshotter", "reqwest", false),
            ("crates/front/fuse", "tonic", false),
            ("crates/front/cli", "dev:reqwest", false),
            ("crates/front/cli", "fuser", false),
            // Unknown.
            ("crates/new", "crates/io", false),
            ("crates/io", "crates/new", false),
        ] {
            let found = check(&[Package::new(package, &[dependency])]);
            assert_eq!(
                found.is_empty(),
                sound,
                "{package} -> {dependency}: {found:?}"
            );
        }
    }
}
