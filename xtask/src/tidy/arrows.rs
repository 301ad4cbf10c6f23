//! Which crate may depend on which: the arrows of the data flow, source to front end.
//!
//! A crate whose folder says nothing is a violation, so that every new one gets its place in `rooms.rs`.

use super::Violation;
use super::manifest::{Dependency, Package};
use super::rooms::Room;

/// Crates that speak a network protocol or bring a runtime for it.
const NETWORK: &[&str] = &[
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
    "tokio",
    "tonic",
    "ureq",
];
/// The crate that listens on a socket of the file system, and those that do so for it.
const SNAPSHOTTER: &str = "forerun-snapshotter";
const SERVING: &[&str] = &["tokio", "tonic"];
/// Crates that speak FUSE.
const FUSE_CRATES: &[&str] = &["fuse", "fuse-backend-rs", "fuse3", "fuser", "polyfuse"];

/// Finds all arrows that point the wrong way.
pub fn check(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let mut report = |message: String| {
            violations.push(Violation {
                place: package.name.clone(),
                line: 0,
                message,
            });
        };
        let Some(room) = package.room() else {
            report("lies in a folder that xtask/src/tidy/rooms.rs does not know".to_string());
            continue;
        };
        for dependency in &package.dependencies {
            let refused = match dependency.dir.as_deref().map(Room::of) {
                None => refuse_external(package, &dependency.name),
                Some(on) => refuse(&package.name, room, dependency, on.map(|(room, _)| room)),
            };
            if let Some(reason) = refused {
                report(format!("depends on {}: {reason}", dependency.name));
            }
        }
    }
    violations
}

fn refuse_external(package: &Package, name: &str) -> Option<&'static str> {
    if NETWORK.contains(&name)
        && package.room() != Some(Room::Remote)
        && !(package.name == SNAPSHOTTER && SERVING.contains(&name))
    {
        Some("only forerun-remote opens sockets")
    } else if FUSE_CRATES.contains(&name) && package.name != "forerun-fuse" {
        Some("only forerun-fuse knows FUSE")
    } else {
        None
    }
}

fn refuse(
    package: &str,
    room: Room,
    dependency: &Dependency,
    on: Option<Room>,
) -> Option<&'static str> {
    let Some(on) = on else {
        return Some("lies in a folder that xtask/src/tidy/rooms.rs does not know");
    };
    let name = dependency.name.as_str();
    if room.may_depend_on(on) || is_built_upon(package, name) || package == name {
        return None;
    }
    if let Some(reason) = driver_arrow((package, room), (name, on)) {
        return Some(reason);
    }
    // Tests may use what lies beside and above, but never tie a front end to a driver.
    if dependency.dev {
        None
    } else {
        Some("this arrow points against the data flow")
    }
}

/// Returns why an arrow is wrong even in tests, from one crate to another.
pub fn driver_arrow(
    (package, room): (&str, Room),
    (on, on_room): (&str, Room),
) -> Option<&'static str> {
    match (room, on_room) {
        _ if room.is_front() && on_room == Room::Format => {
            Some("a front end knows no driver; go through the crate forerun")
        }
        _ if room == Room::Format && on_room.is_front() => Some("a driver knows no front end"),
        (Room::Format, Room::Format) if package != on && !is_built_upon(package, on) => {
            Some("a driver knows no other driver")
        }
        _ => None,
    }
}

/// Returns whether the format of one crate contains that of the other: the metadata of a composefs image
/// is an EROFS image.
fn is_built_upon(package: &str, on: &str) -> bool {
    (package, on) == ("forerun-composefs", "forerun-erofs")
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
            // A front end imports a driver, in tests too.
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
            // Against the flow.
            ("crates/formats/romfs", "crates/engine", false),
            ("crates/build", "crates/engine", false),
            ("crates/io", "crates/vfs", false),
            ("crates/vfs", "crates/engine", false),
            ("crates/engine", "crates/forerun", false),
            ("crates/engine", "crates/test/kit", false),
            ("crates/test/kit", "crates/test/servers", false),
            ("crates/formats/romfs", "crates/forerun", false),
            ("crates/store/remote", "crates/engine", false),
            // What one crate only may use.
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
