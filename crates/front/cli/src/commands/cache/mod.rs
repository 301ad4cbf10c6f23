//! `forerun cache`: the local cache of remote images.

mod prefetch;

use clap::{Args, Subcommand};
use forerun::unstable::cache::{Cache, CacheError, CacheOptions, Entry, Verified};
use forerun::unstable::remote::RemoteOptions;
use serde_json::json;

use crate::args::CacheArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::remote;
use crate::size::{self, count_of, counted};

/// Manage the cache of images at servers
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun cache ls
  forerun cache prefetch oci://registry.example/app:1.0   then it works offline
  forerun cache gc --to 10G
  forerun cache verify")]
pub struct CacheCommandArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// The commands on a cache.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the cached images, most recently used first
    Ls(PlaceArgs),
    /// Remove images that are not in use, least recently used first
    Gc(CacheGcArgs),
    /// Verify all cached data, and drop what is damaged
    Verify(PlaceArgs),
    /// Fetch a whole image, or the chunks of an access list
    Prefetch(Box<prefetch::PrefetchArgs>),
}

/// Which cache.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun cache ls
  forerun cache verify")]
pub struct PlaceArgs {
    #[command(flatten)]
    pub cache: CacheArgs,
}

/// How much to remove.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun cache gc
  forerun cache gc --to 10G")]
pub struct CacheGcArgs {
    #[command(flatten)]
    pub cache: CacheArgs,
    /// Remove images until the cache is at most this large [default: --cache-limit, otherwise 0]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub to: Option<u64>,
}

pub fn run(context: &Context, args: &CacheCommandArgs) -> Result {
    match &args.command {
        CacheCommand::Ls(args) => list(context, &open(&args.cache)?),
        CacheCommand::Gc(args) => collect(context, args),
        CacheCommand::Verify(args) => verify(context, &open(&args.cache)?),
        CacheCommand::Prefetch(args) => prefetch::run(context, args),
    }
}

fn open(args: &CacheArgs) -> Result<Cache> {
    let options = RemoteOptions {
        cache_dir: args.cache_dir.clone(),
        ..RemoteOptions::default()
    };
    let dir = options.cache_dir();
    let dir = dir.ok_or_else(|| {
        Failure::usage("there is no home directory to find the cache in")
            .hint("name one: --cache-dir DIR")
    })?;
    let settings = args
        .cache_limit
        .map_or_else(CacheOptions::default, CacheOptions::with_limit);
    Cache::open(&dir, settings).map_err(|error| failed(&error).of(dir.display()))
}

fn failed(error: &CacheError) -> Failure {
    Failure::new(
        Exit::Source,
        "cache",
        crate::error::without_errno(&error.to_string()),
    )
}

fn list(context: &Context, cache: &Cache) -> Result {
    let entries = cache.list().map_err(|error| failed(&error))?;
    let mut out = Output::stdout()?;
    if context.global.json {
        let entries: Vec<_> = entries.iter().map(entry_json).collect();
        out.json(&json!(entries))?;
        out.finish()?;
        return Ok(Exit::Ok);
    }
    for entry in &entries {
        let used = if entry.in_use { "in use" } else { "-" };
        let verified = match entry.verified {
            Verified::Table(_) | Verified::Whole(_) => "verified",
            _ => "unverified",
        };
        out.line(format!(
            "{:>10} of {:>10}  {verified:<10}  {used:<6}  {}",
            remote::human(entry.local_bytes),
            remote::human(entry.len),
            crate::escape::printable(&entry.label),
        ))?;
    }
    out.finish()?;
    let bytes = entries.iter().map(|entry| entry.disk_bytes).sum();
    context.note(&format!(
        "{}, {} on disk",
        counted(count_of(entries.len()), "image", "images"),
        size::human(bytes)
    ));
    Ok(Exit::Ok)
}

fn entry_json(entry: &Entry) -> serde_json::Value {
    let verified = match &entry.verified {
        Verified::Table(root) => json!({ "table": root.to_string() }),
        Verified::Whole(digest) => json!({ "whole": digest.to_string() }),
        _ => json!(null),
    };
    let since = entry.last_used.duration_since(std::time::UNIX_EPOCH);
    json!({
        "identity": entry.identity,
        "place": entry.label,
        "bytes": entry.len,
        "local_bytes": entry.local_bytes,
        "disk_bytes": entry.disk_bytes,
        "chunk_size": entry.chunk_size,
        "in_use": entry.in_use,
        "last_used": since.map_or(0, |since| since.as_secs()),
        "verified": verified,
    })
}

fn collect(context: &Context, args: &CacheGcArgs) -> Result {
    let cache = open(&args.cache)?;
    let to = args.to.or(args.cache.cache_limit).unwrap_or(0);
    let report = cache.shrink_to(to).map_err(|error| failed(&error))?;
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&json!({
            "removed": report.removed,
            "freed_bytes": report.freed_bytes,
            "left_bytes": report.left_bytes,
            "in_use": report.in_use,
        }))?;
    }
    out.finish()?;
    if report.busy {
        context.note("another process is removing chunks already: nothing was removed");
        return Ok(Exit::Partial);
    }
    context.note(&format!(
        "{} removed, {}; {} left, {} of them in use",
        counted(report.removed, "image", "images"),
        size::human(report.freed_bytes),
        size::human(report.left_bytes),
        report.in_use,
    ));
    Ok(Exit::Ok)
}

fn verify(context: &Context, cache: &Cache) -> Result {
    let mut out = Output::stdout()?;
    let (mut failure, mut wrong, mut rows) = (None, 0, Vec::new());
    let checked = cache.verify(|report| {
        wrong += report.wrong.len();
        if context.global.json {
            let wrong: Vec<_> = report
                .wrong
                .iter()
                .map(|run| [run.start, run.end])
                .collect();
            rows.push(json!({
                "identity": report.identity,
                "place": report.label,
                "checked_chunks": report.checked,
                "unverified_chunks": report.unverified,
                "wrong_chunks": wrong,
            }));
            return;
        }
        let mut say = |text: String| {
            if failure.is_none() {
                failure = out.line(text).err();
            }
        };
        let label = crate::escape::printable(&report.label);
        for run in &report.wrong {
            let (first, last) = (run.start, run.end.saturating_sub(1));
            say(format!(
                "{label}: chunks {first} to {last} were wrong, and were removed"
            ));
        }
        if report.wrong.is_empty() {
            let verified = report.checked.saturating_sub(report.unverified);
            say(match report.unverified {
                0 => format!("{label}: {verified} chunks are right"),
                recorded => format!(
                    "{label}: {verified} chunks are right, {recorded} are unchanged since they were fetched (the image has no digests of them)"
                ),
            });
        }
        if !report.wrong.is_empty() && report.in_use {
            say(format!("{label}: is in use; unmount it and mount it again"));
        }
    });
    checked.map_err(|error| failed(&error))?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if context.global.json {
        out.json(&json!(rows))?;
    }
    out.finish()?;
    Ok(if wrong > 0 { Exit::Image } else { Exit::Ok })
}
