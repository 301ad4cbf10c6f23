//! Which image of a file is compared.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use forerun::unstable::disk::scan::{ScanKind, ScanOptions, scan};
use forerun::unstable::formats;
use forerun::{Image, Observer, OpenOptions};

use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::size;
use crate::source::PreparedImage;

/// Takes the offset or partition from `FILE@OFFSET` or `FILE@pN`, unless a file has the whole name.
pub fn place(args: &mut ImageArgs) -> Result<()> {
    let name = args.image.as_os_str().as_bytes();
    let Some(at) = name.iter().rposition(|&byte| byte == b'@') else {
        return Ok(());
    };
    let file = Path::new(OsStr::from_bytes(&name[..at]));
    let Ok(place) = std::str::from_utf8(&name[at + 1..]) else {
        return Ok(());
    };
    if args.image.exists() || !file.exists() {
        return Ok(());
    }
    let partition = place
        .strip_prefix('p')
        .and_then(|number| number.parse().ok());
    if partition.is_some() {
        args.source.partition = partition;
    } else {
        let offset = size::parse(place);
        args.source.offset = offset.map_err(|error| {
            let message = format!(
                "{:?} is neither an offset nor pN: {error}",
                format!("@{place}")
            );
            Failure::usage(message).of(args.image.display())
        })?;
    }
    args.image = file.to_path_buf();
    Ok(())
}

/// Returns whether images are searched for if the file is none: nothing says where one is.
pub fn may_be_searched(args: &ImageArgs) -> bool {
    let source = &args.source;
    let is_told = source.offset > 0 || source.size.is_some() || source.partition.is_some();
    !is_told && source.format.is_none() && args.image.is_file()
}

/// Searches a file that is no image, and opens the largest image in it. Returns `failure` if there is none.
pub fn largest_image(
    context: &Context,
    prepared: PreparedImage,
    name: &str,
    failure: Failure,
) -> Result<Image> {
    let (source, options) = prepared.into_source(context)?;
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let scanned = scan(
        &source,
        formats(),
        ScanOptions::default(),
        &observer,
        &mut |_| {},
    );
    let mut images = scanned
        .map_err(|error| Failure::from(error).of(name))?
        .findings;
    images.retain(|finding| matches!(finding.kind, ScanKind::Image(_)));
    // The first of the largest.
    let Some(largest) = images.iter().rev().max_by_key(|finding| finding.len) else {
        return Err(failure);
    };
    let opened = Image::from_source(
        source,
        &OpenOptions {
            offset: largest.offset,
            size: largest.len,
            ..options
        },
    );
    let image = opened.map_err(|error| Failure::from(error).of(name))?;
    let (kind, offset) = (largest.kind.name(), largest.offset);
    context.note(&format!(
        "{name}: the {kind} image at offset {offset} is compared"
    ));
    if images.len() > 1 {
        let others = images.iter().filter(|other| other.offset != offset);
        let others: Vec<_> = others.map(|other| format!("@{}", other.offset)).collect();
        let others = others.get(..8).unwrap_or(&others).join(" ");
        context.note(&format!(
            "{name}: it has other images, which FILE@OFFSET names: {others}"
        ));
    }
    context.observe(image.reader().observer());
    context.warn_of(name, image.reader().fs().volume());
    Ok(image)
}
