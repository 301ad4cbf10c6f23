//! `forerun cache prefetch`: fetches an image, or the layers of a container image, before it is
//! used.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forerun::unstable::cache::{AccessList, CacheError};
use forerun::unstable::remote::{Opened, Prefetch, RemoteImage, RemoteStatus, access_lists};

use super::failed;
use crate::args::RemoteArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::{fetch, names, remote, size};

/// Pause between two checks of the progress.
const PAUSE: Duration = Duration::from_millis(50);

/// The image to fetch.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun cache prefetch oci://registry.example/app:1.0
  forerun cache prefetch --prefetch used.txt oci://registry.example/app:1.0
  forerun cache prefetch https://example.org/data.squashfs")]
pub struct PrefetchArgs {
    /// Image: an oci://, s3:// or https:// name
    #[arg(value_name = "NAME")]
    pub name: PathBuf,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

struct ToFetch {
    image: Arc<RemoteImage>,
    /// The parts to fetch. `None` means the whole image.
    list: Option<AccessList>,
}

pub fn run(context: &Context, args: &PrefetchArgs) -> Result {
    let reference = remote::reference(&args.name)?;
    let reference = reference.ok_or_else(|| names::not_at_server(&args.name))?;
    crate::layer_count::allow_open_files();
    let list = match args.remote.options().prefetch {
        Prefetch::List(path) => Some(path),
        Prefetch::None | Prefetch::All => None,
    };
    let (wanted, is_container) = match fetch::open_all(context, &reference, &args.remote)? {
        Opened::Image(image) => {
            let list = list.map(|path| remote::access_list(&path)).transpose()?;
            (vec![ToFetch { image, list }], false)
        }
        Opened::Layers(layers) => {
            let lists = list.map(|path| access_lists(&path)).transpose();
            let lists = lists.map_err(|error| remote::failure(&error))?;
            (of_layers(layers, lists.as_deref()), true)
        }
    };
    // The chunks of access lists were requested when the image was opened.
    for wanted in wanted.iter().filter(|wanted| wanted.list.is_none()) {
        wanted.image.prefetch_all();
    }
    wait(context, &wanted);
    if is_container {
        for wanted in wanted.iter().filter(|wanted| wanted.list.is_none()) {
            let whole = wanted.image.ensure_whole(&mut || ());
            whole.map_err(|error| remote::failure(&error))?;
        }
    }
    report(context, &wanted)
}

/// Returns each distinct layer with its list. If there are lists, a layer without one is not
/// fetched.
fn of_layers(layers: Vec<Arc<RemoteImage>>, lists: Option<&[AccessList]>) -> Vec<ToFetch> {
    let mut known = HashSet::new();
    let new = layers
        .into_iter()
        .filter(|layer| known.insert(layer.identity().to_string()));
    let wanted = new.filter_map(|image| {
        let Some(lists) = lists else {
            return Some(ToFetch { image, list: None });
        };
        let identity = image.identity().to_string();
        let list = lists.iter().find(|list| list.identity == identity)?.clone();
        let list = Some(list);
        Some(ToFetch { image, list })
    });
    wanted.collect()
}

fn status_of(wanted: &[ToFetch]) -> RemoteStatus {
    let statuses = wanted.iter().map(|wanted| wanted.image.status());
    RemoteStatus::of_all(statuses).unwrap_or_default()
}

/// Waits until everything requested has arrived or has failed.
fn wait(context: &Context, wanted: &[ToFetch]) {
    let bar = Progress::new(context, "fetching", status_of(wanted).len);
    let mut before = 0;
    loop {
        let status = status_of(wanted);
        bar.add(status.local_bytes.saturating_sub(before));
        before = before.max(status.local_bytes);
        let queued = status.in_flight + status.readahead_queue + status.background_queue;
        if status.complete || queued == 0 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
}

fn report(context: &Context, wanted: &[ToFetch]) -> Result {
    let (mut all, mut missed) = (0, 0);
    for ToFetch { image, list } in wanted {
        image.blob().flush().map_err(|error| failed(&error))?;
        let (of_image, missing) = missing(image, list.as_ref()).map_err(|error| failed(&error))?;
        all += of_image;
        missed += missing;
    }
    let status = status_of(wanted);
    if missed > 0 {
        let reason = status
            .last_error
            .map_or_else(String::new, |last| format!(": {last}"));
        let reason = format!(
            "{} of {} could not be fetched{reason}",
            size::human(missed),
            size::human(all)
        );
        return Err(Failure::new(Exit::Source, "remote", reason));
    }
    context.note(&format!(
        "{} of {} are in the cache; {} fetched",
        size::human(status.local_bytes),
        size::human(status.len),
        size::human(status.fetched_bytes),
    ));
    Ok(Exit::Ok)
}

/// Counts the requested bytes, and how many of them are missing.
fn missing(
    image: &RemoteImage,
    list: Option<&AccessList>,
) -> std::result::Result<(u64, u64), CacheError> {
    let (blob, geometry) = (image.blob(), image.blob().geometry());
    let bytes = |runs: &[Range<u64>]| -> u64 {
        let bytes = runs.iter().map(|run| geometry.bytes_of(run));
        bytes.map(|bytes| bytes.end - bytes.start).sum()
    };
    let mut wanted = match list {
        Some(list) => list.runs_for(&geometry),
        None => std::iter::once(0..geometry.chunks()).collect(),
    };
    // A list that was made with another chunk size may name a chunk twice.
    wanted.sort_by_key(|run| run.start);
    let mut end = 0;
    for run in &mut wanted {
        run.start = run.start.max(end).min(run.end);
        end = end.max(run.end);
    }
    let mut missing = 0;
    for run in &wanted {
        missing += bytes(&blob.missing(run.clone())?);
    }
    Ok((bytes(&wanted), missing))
}
