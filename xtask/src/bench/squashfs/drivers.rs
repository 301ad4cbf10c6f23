//! Images mounted by the drivers that are compared.

use std::path::Path;

use anyhow::{Result, bail};
use forerun_measure::mount::{Access, Mount, Mounted};
use forerun_measure::peers::{Peer, Place};
use forerun_measure::programs::find_program;

use super::rows::SquashfsContender;

/// Mounts as root and waits until the mount is there.
pub fn mount(contender: SquashfsContender, forerun: &Path, image: &Path) -> Result<Mount> {
    match peer(contender) {
        None if contender == SquashfsContender::Forerun => {
            Mounted::new(forerun, image, Access::ROOT).map(Mount::Forerun)
        }
        Some(peer) => peer.mount(&place(image)).map(Mount::Other),
        None => bail!("{contender} mounts nothing"),
    }
}

/// Returns the driver or program that reads images, unless it is forerun.
pub fn peer(contender: SquashfsContender) -> Option<Peer> {
    match contender {
        SquashfsContender::Kernel => Some(Peer::Kernel),
        SquashfsContender::Squashfuse => Some(Peer::SquashfuseLl),
        SquashfsContender::Unsquashfs => Some(Peer::Unsquashfs),
        SquashfsContender::Forerun
        | SquashfsContender::Mksquashfs
        | SquashfsContender::OtherRuntime
        | SquashfsContender::FromMemory
        | SquashfsContender::DecodedAndWritten
        | SquashfsContender::Decoded
        | SquashfsContender::DecodedWhereAsked
        | SquashfsContender::FilesInMemory => None,
    }
}

/// Returns the place of an image that is a whole file.
pub fn place(image: &Path) -> Place<'_> {
    Place {
        image,
        format: "squashfs",
        offset: 0,
        size: None,
        objects: None,
    }
}

/// Returns why a driver or program cannot take part, if it cannot.
pub fn missing(contender: SquashfsContender) -> Option<String> {
    match peer(contender) {
        Some(peer) => peer.missing(&place(Path::new(""))),
        None if contender != SquashfsContender::Mksquashfs => None,
        None => {
            let there = find_program("mksquashfs").is_some();
            (!there).then(|| "mksquashfs is not installed".to_string())
        }
    }
}
