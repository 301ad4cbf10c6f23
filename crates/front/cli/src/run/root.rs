//! The root directory of a command. overlayfs merges lower layers, the image, missing mount points
//! ([`skeleton`](super::skeleton)) and the changes; /proc and the like, and the requested files of
//! the system, are mounted on top.
//!
//! It is built on a filesystem in memory that hides a directory of the system in process 1's mount
//! namespace. Everything that the user names is opened before that.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat, open};
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};
use rustix::process::{fchdir, pivot_root};

use crate::error::{Failure, Result};

use super::attach::{attach, by_descriptor, filesystem, inside, read_only_tree, tree};
use super::changes::{Layers, UPPER, WORK};
use super::ids::is_one_user;
use super::plan::{Bind, Overlay, RunPlan};
use super::skeleton::{self, Skeleton, TargetKind};
use super::system::{DIRECTORIES, System, make_in_memory, memory};
use super::{failed, namespace_failure};

/// Directories that every system has. The new root is mounted on one of them, which hides it from
/// process 1 only.
const BASES: [&str; 4] = ["/tmp", "/run", "/var", "/mnt"];
/// Names in the directory where the root is built.
const IMAGE: &str = "image";
const SKELETON: &str = "skeleton";
const ROOT: &str = "root";

/// Files that are opened before the system's files are hidden.
pub struct Place {
    base: &'static str,
    scratch: OwnedFd,
    system: System,
    binds: Vec<OwnedFd>,
    overlay: Option<Layers>,
}

/// Opens everything that the plan names, and mounts the filesystem on which the root directory is
/// built.
pub fn prepare(plan: &RunPlan) -> Result<Place> {
    let making = |error: io::Error| namespace_failure("making the root directory", &error);
    let binds = plan.binds.iter().map(|bind| {
        let opened = if bind.read_only {
            read_only_tree(&bind.from)
        } else {
            tree(&bind.from)
        };
        opened.map_err(|error| Failure::source(&error).of(bind.from.display()))
    });
    let binds = binds.collect::<Result<_>>()?;
    let overlay = match &plan.overlay {
        Overlay::Directory(dir) => Some(Layers::open(dir)?),
        Overlay::None | Overlay::Memory => None,
    };
    let system = System::take().map_err(making)?;
    let base = BASES.into_iter().find(|dir| Path::new(dir).is_dir());
    let base = base.ok_or_else(|| making(io::ErrorKind::NotFound.into()))?;
    let scratch = memory("755").map_err(making)?;
    let below = open(base, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    attach(&scratch, below.map_err(|error| making(error.into()))?).map_err(making)?;
    Ok(Place {
        base,
        scratch,
        system,
        binds,
        overlay,
    })
}

/// Builds the root directory on top of the served image, and moves this process there.
pub fn enter(plan: &RunPlan, place: Place, mount: OwnedFd) -> Result<()> {
    let making = |error: io::Error| namespace_failure("making the root directory", &error);
    let scratch = &place.scratch;
    let directory = |name: &str| -> io::Result<OwnedFd> {
        mkdirat(scratch, name, Mode::from_raw_mode(0o755))?;
        inside(scratch, name)
    };
    attach(&mount, directory(IMAGE).map_err(making)?).map_err(making)?;
    drop(mount);
    let image = inside(scratch, IMAGE).map_err(making)?;
    let layer = directory(SKELETON).map_err(making)?;
    let skeleton = Skeleton {
        image: image.as_fd(),
        layer: layer.as_fd(),
    };
    fill(skeleton, plan, &place.binds)?;
    for name in [UPPER, WORK] {
        directory(name).map_err(making)?;
    }
    let below = directory(ROOT).map_err(making)?;
    let overlay = overlay(plan, &place)?;
    attach(&overlay, below).map_err(making)?;
    let root = inside(scratch, ROOT).map_err(making)?;
    place.system.attach(&root).map_err(making)?;
    for (bind, tree) in plan.binds.iter().zip(&place.binds) {
        show(bind, tree, &root)
            .map_err(|error| failed(&format!("--bind {}", bind.to.display()), &error))?;
    }
    let moving = |error: rustix::io::Errno| {
        let failure = failed("changing the root directory", &error.into());
        match error {
            rustix::io::Errno::INVAL => {
                failure.hint("a system whose root is its initial RAM disk cannot do this")
            }
            _ => failure,
        }
    };
    fchdir(&root).map_err(moving)?;
    pivot_root(".", ".").map_err(moving)?;
    unmount(".", UnmountFlags::DETACH).map_err(moving)
}

/// Fills the layer between the image and the changes.
fn fill(skeleton: Skeleton<'_>, plan: &RunPlan, binds: &[OwnedFd]) -> Result<()> {
    skeleton
        .begin()
        .map_err(|error| failed("reading the image", &error))?;
    for path in DIRECTORIES {
        let added = skeleton.add(Path::new(path), TargetKind::Directory);
        added.map_err(|error| failed(path, &error))?;
    }
    for (bind, tree) in plan.binds.iter().zip(binds) {
        let added = TargetKind::of(tree).and_then(|kind| skeleton.add(&bind.to, kind));
        added.map_err(|error| failed(&format!("--bind {}", bind.to.display()), &error))?;
    }
    if skeleton.image_has("/etc") {
        // The command shares the system's network, so it needs the system's host names.
        let taken = [("/etc/resolv.conf", true), ("/etc/hosts", false)];
        for (path, is_replaced) in taken {
            if let Some(contents) = skeleton::read(path)
                && (is_replaced || !skeleton.image_has(path))
            {
                let written = skeleton.write(Path::new(path), &contents);
                written.map_err(|error| failed(path, &error))?;
            }
        }
    }
    Ok(())
}

fn overlay(plan: &RunPlan, place: &Place) -> Result<OwnedFd> {
    let base = Path::new(place.base);
    let path = |name: &str| base.join(name).display().to_string();
    let lower = format!("{}:{}", path(SKELETON), path(IMAGE));
    let (upper, work) = match &place.overlay {
        Some(Layers { upper, work }) => {
            let path = |dir| by_descriptor(dir).display().to_string();
            (path(upper), path(work))
        }
        None => (path(UPPER), path(WORK)),
    };
    let mut options = vec![
        ("source", Some(plan.name.as_str())),
        ("lowerdir", Some(lower.as_str())),
        ("userxattr", None),
    ];
    if plan.overlay != Overlay::None {
        options.extend([
            ("upperdir", Some(upper.as_str())),
            ("workdir", Some(work.as_str())),
        ]);
    }
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV;
    if is_one_user().map_err(|error| failed("overlayfs", &error))? {
        attributes |= MountAttrFlags::MOUNT_ATTR_NOSUID;
    }
    filesystem("overlay", &options, attributes).map_err(|error| {
        let failure = failed("overlayfs", &error);
        match (error.kind(), &plan.overlay) {
            (io::ErrorKind::PermissionDenied, _) => {
                failure.hint("overlayfs without root needs Linux 5.11")
            }
            (io::ErrorKind::InvalidInput, Overlay::Directory(dir)) => failure
                .hint("the directory must be on a filesystem that overlayfs can write to, not on another overlayfs or NFS")
                .of(dir.display()),
            _ => failure,
        }
    })
}

fn show(bind: &Bind, tree: &OwnedFd, root: &OwnedFd) -> io::Result<()> {
    let is_directory = TargetKind::of(tree)? == TargetKind::Directory;
    let target = match inside(root, &bind.to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_in_memory(root, &bind.to, is_directory)?;
            inside(root, &bind.to)?
        }
        target => target?,
    };
    attach(tree, &target)
}
