//! Which crate may depend on which: the arrows of the data flow, source to front end.
//!
//! A crate that is not in the table is a violation, so that every new one gets its place here.

use super::Violation;
use super::manifest::{Dependency, Package};

/// The drivers.
pub const DRIVERS: &[&str] = &[
    "forerun-composefs",
    "forerun-erofs",
    "forerun-exfat",
    "forerun-romfs",
    "forerun-squashfs",
];
/// What users meet.
pub const FRONT_ENDS: &[&str] = &[
    "forerun-cli",
    "forerun-export",
    "forerun-fuse",
    "forerun-kernel",
    "forerun-python",
];
/// Chunks on disk, below the crate that fetches them.
const CACHE: &str = "forerun-cache";
/// The only crate that opens sockets.
pub const REMOTE: &str = "forerun-remote";
/// The only crate that knows FUSE.
pub const FUSE: &str = "forerun-fuse";

/// The fuzz targets as functions, and the programs in `fuzz/` that call them.
const FUZZING: &str = "forerun-fuzzing";

/// What a process gives up before it reads an image. The commands decide that.
const SANDBOX: &str = "forerun-sandbox";

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
    "ureq",
];
/// Crates that speak FUSE.
const FUSE_CRATES: &[&str] = &["fuse", "fuse-backend-rs", "fuse3", "fuser", "polyfuse"];

const BASE: &[&str] = &[
    "forerun-io",
    "forerun-codec",
    "forerun-vfs",
    "forerun-engine",
];

/// What a crate may depend on inside the workspace, tests aside. `None` for an unknown crate.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    Some(match name {
        "forerun-io" | "forerun-codec" | SANDBOX => Vec::new(),
        "forerun-vfs" => vec!["forerun-io", "forerun-codec", "forerun-vfs"],
        "forerun-cache" => vec!["forerun-io"],
        "forerun-remote" => vec!["forerun-io", CACHE],
        "forerun-engine" | "forerun-romfs" | "forerun-squashfs" | "forerun-erofs"
        | "forerun-exfat" | "forerun-testkit" => BASE.to_vec(),
        "forerun-composefs" => [BASE, &["forerun-erofs"]].concat(),
        "forerun" => [BASE, DRIVERS, &[CACHE, REMOTE]].concat(),
        "forerun-fuse" | "forerun-kernel" | "forerun-export" => [BASE, &["forerun"]].concat(),
        "forerun-cli" | "forerun-python" => {
            let fronts = ["forerun-export", "forerun-fuse", "forerun-kernel"];
            [BASE, &["forerun", SANDBOX], &fronts].concat()
        }
        // They look at everything and nothing looks at them.
        "forerun-benches" | "forerun-fuzz" | FUZZING | "xtask" => [
            BASE,
            DRIVERS,
            FRONT_ENDS,
            &[
                CACHE,
                REMOTE,
                SANDBOX,
                FUZZING,
                "forerun",
                "forerun-testkit",
            ],
        ]
        .concat(),
        _ => return None,
    })
}

/// All arrows that point the wrong way.
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
        let Some(allowed) = allowed(&package.name) else {
            report("is not in the table of arrows in xtask/src/tidy/arrows.rs".to_string());
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(reason) = refuse(&package.name, dependency, &allowed) {
                report(format!("depends on {}: {reason}", dependency.name));
            }
        }
    }
    violations
}

fn refuse(package: &str, dependency: &Dependency, allowed: &[&str]) -> Option<&'static str> {
    let name = dependency.name.as_str();
    if dependency.external {
        return match name {
            _ if NETWORK.contains(&name) && package != REMOTE => {
                Some("only forerun-remote opens sockets")
            }
            _ if FUSE_CRATES.contains(&name) && package != FUSE => {
                Some("only forerun-fuse knows FUSE")
            }
            _ => None,
        };
    }
    if allowed.contains(&name) {
        return None;
    }
    if let Some(reason) = driver_arrow(package, name) {
        return Some(reason);
    }
    // Tests may use what lies beside and above, but never tie a front end to a driver.
    match dependency.dev {
        true => None,
        false => Some("this arrow points against the data flow"),
    }
}

/// The arrows that are wrong even in tests.
pub fn driver_arrow(package: &str, on: &str) -> Option<&'static str> {
    let (is_driver, on_driver) = (DRIVERS.contains(&package), DRIVERS.contains(&on));
    if FRONT_ENDS.contains(&package) && on_driver {
        Some("a front end knows no driver; go through the crate forerun")
    } else if is_driver && FRONT_ENDS.contains(&on) {
        Some("a driver knows no front end")
    } else if is_driver && on_driver && package != on {
        match (package, on) {
            ("forerun-composefs", "forerun-erofs") => None,
            _ => Some("a driver knows no other driver"),
        }
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (package, dependency, sound) in [
            ("forerun-fuse", "forerun-vfs", true),
            ("forerun-fuse", "forerun", true),
            ("forerun-fuse", "fuser", true),
            ("forerun", "forerun-romfs", true),
            ("forerun-composefs", "forerun-erofs", true),
            ("forerun-remote", "reqwest", true),
            ("forerun-romfs", "forerun-engine", true),
            ("forerun-romfs", "dev:forerun", true),
            ("forerun-io", "dev:forerun-testkit", true),
            ("xtask", "forerun-testkit", true),
            // A front end imports a driver, in tests too.
            ("forerun-fuse", "forerun-romfs", false),
            ("forerun-export", "forerun-squashfs", false),
            ("forerun-cli", "forerun-erofs", false),
            ("forerun-kernel", "forerun-exfat", false),
            ("forerun-python", "forerun-composefs", false),
            ("forerun-cli", "dev:forerun-romfs", false),
            // A driver imports a front end or another driver.
            ("forerun-romfs", "forerun-fuse", false),
            ("forerun-romfs", "forerun-squashfs", false),
            ("forerun-erofs", "forerun-composefs", false),
            // Against the flow.
            ("forerun-io", "forerun-vfs", false),
            ("forerun-vfs", "forerun-engine", false),
            ("forerun-engine", "forerun", false),
            ("forerun-engine", "forerun-testkit", false),
            ("forerun-romfs", "forerun", false),
            ("forerun-remote", "forerun-engine", false),
            // What one crate only may use.
            ("forerun-engine", "tokio", false),
            ("forerun-cli", "dev:reqwest", false),
            ("forerun-cli", "fuser", false),
            // Unknown.
            ("forerun-new", "forerun-io", false),
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
