//! The merge of `mkfs.erofs`: an image with the metadata of several layers. The layers, or the
//! devices to which they refer, keep the data.

use std::fmt::Write;
use std::path::PathBuf;

use forerun::build::{DeviceWithData, ImageOptions, Tree, from_image};
use forerun::unstable::blob_of_layer;
use forerun::unstable::erofs::Erofs;
use forerun::vfs::BlobId;
use forerun_sandbox::Sandbox;

use super::image_args;
use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::image_limits;
use crate::source::{PreparedImage, prepare};

/// The files of the layers, which are open.
pub struct Layers {
    single: Vec<PreparedImage>,
    merged: PreparedImage,
}

pub struct Devices {
    pub list: Vec<DeviceWithData>,
    pub block_size: u32,
}

impl Layers {
    /// Opens the layers, the lowest first.
    pub fn open(context: &Context, paths: &[PathBuf]) -> Result<Self> {
        let single = paths.iter().map(|path| {
            let args = image_args(path.as_os_str(), &[], 0);
            prepare(context, &args)
        });
        let merged = ImageArgs {
            layers: paths.to_vec(),
            limits: image_limits(),
            ..ImageArgs::default()
        };
        Ok(Self {
            single: single.collect::<Result<_>>()?,
            merged: prepare(context, &merged)?,
        })
    }

    pub fn with_index(&self, sandbox: Sandbox) -> Sandbox {
        self.merged.with_index(sandbox)
    }

    /// Reads the merged tree, without whiteouts, and the devices that have the data of its files.
    pub fn read(self, context: &Context, options: &ImageOptions) -> Result<(Tree, Devices)> {
        let count = u32::try_from(self.single.len()).unwrap_or(u32::MAX);
        let (mut list, mut block_size, mut indexes) = (Vec::new(), 0, 0);
        for (number, layer) in (0..).zip(self.single) {
            let name = layer.name();
            let named = |failure: Failure| failure.of(&name);
            let image = context.open_prepared(layer, None)?;
            let volume = image.reader().fs().volume();
            let Some(driver) = image.driver::<Erofs>() else {
                let failure = Failure::new(Exit::Format, "format", "not an EROFS image");
                return Err(named(failure));
            };
            let mut device = DeviceWithData {
                blob: BlobId::IMAGE,
                tag: Vec::new(),
                len: volume.image_len,
            };
            match driver.devices() {
                [] => {}
                [one] => {
                    indexes += 1;
                    device = DeviceWithData {
                        blob: BlobId(1),
                        tag: one.tag.clone(),
                        len: one.blocks * u64::from(volume.block_size),
                    };
                }
                more => {
                    let message = format!("a layer with {} devices", more.len());
                    return Err(named(Failure::new(Exit::Source, "unsupported", message)));
                }
            }
            if device.tag.is_empty() {
                device.tag = tag(driver.superblock().uuid);
            }
            let blob = blob_of_layer(number, count, device.blob);
            device.blob = blob.map_err(|error| named(error.into()))?;
            list.push(device);
            block_size = volume.block_size;
        }
        if indexes > 0 && indexes < list.len() {
            let message = "layers with and without a device cannot be merged";
            return Err(Failure::new(Exit::Source, "unsupported", message));
        }
        let image = context.open_prepared(self.merged, None)?;
        let tree = from_image(image.reader(), options)?;
        Ok((tree, Devices { list, block_size }))
    }
}

/// Returns the name of a layer in the device table: its UUID in hexadecimal.
fn tag(uuid: [u8; 16]) -> Vec<u8> {
    let mut tag = String::new();
    for byte in uuid {
        let _never_fails = write!(tag, "{byte:02x}");
    }
    tag.into_bytes()
}
