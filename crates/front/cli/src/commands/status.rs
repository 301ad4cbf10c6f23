//! `forerun status`: the mounts of the user's processes, and their state.

use std::time::Duration;

use clap::Args;
use forerun_sys::mount_table::MountEntry;
use serde_json::{Value, json};

use crate::at_server::at_server;
use crate::context::Context;
use crate::error::Result;
use crate::escape::printable;
use crate::exit::Exit;
use crate::json::{number, text};
use crate::output::Output;
use crate::remote::human;
use crate::size::{count_of, counted};
use crate::socket::{ANSWER_TIMEOUT, Silent, ask_all};
use crate::umount::dead_mounts;

use super::watch;

/// Show the mounts of forerun and their state
///
#[cfg_attr(
    feature = "network",
    doc = "Shows the mounts whose processes belong to the caller. For images at servers, it shows how much is",
    doc = "cached, the transfer rate, pending requests and errors. It only counts mounts that the kernel serves without forerun."
)]
#[cfg_attr(
    not(feature = "network"),
    doc = "Shows the mounts whose processes belong to the caller. It only counts mounts that the kernel serves without forerun."
)]
#[derive(Args, Debug)]
#[command(after_help = concat!("\
Examples:
  forerun status
  forerun status --watch              rates, every second, until Ctrl-C
  forerun status --watch 10 >> log    a line every ten seconds
  forerun status --json | jq '.[]", at_server!(".remote.local_bytes", ".cached_bytes"), "'"))]
pub struct StatusArgs {
    /// Show rates and cache use every SECONDS [default: 1] until Ctrl-C
    ///
    /// On a terminal, the display is updated in place. Otherwise, each interval prints one line, or
    /// one JSON object with --json.
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = watch::parse_interval)]
    pub watch: Option<Duration>,
}

pub fn run(context: &Context, args: &StatusArgs) -> Result {
    if let Some(interval) = args.watch {
        return watch::run(context, interval);
    }
    let asked = ask_all(ANSWER_TIMEOUT);
    let silent = asked.silent.iter().flat_map(Silent::rows);
    let answers = asked.answers.into_iter().map(|told| told.mount);
    let mut mounts: Vec<_> = answers.chain(silent).collect();
    mounts.extend(dead(&mounts)?);
    let shown = report(&mut mounts, context.global.verbose > 0);
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&json!(mounts))?;
    } else {
        for line in shown {
            out.line(line)?;
        }
    }
    out.finish()?;
    for pid in asked.gone {
        context.note(&format!(
            "process {pid}, which served a mount, was killed; its socket was removed"
        ));
    }
    context.note(&total(&mounts));
    Ok(Exit::Ok)
}

/// Returns the mounts whose process was killed, from the mount table.
fn dead(served: &[Value]) -> Result<Vec<Value>> {
    let served: Vec<_> = served
        .iter()
        .map(|mount| text(mount, "device").to_string())
        .collect();
    let row = |entry: MountEntry| {
        let (major, minor) = entry.device;
        json!({
            "dir": entry.mount_point.display().to_string(),
            "image": entry.source.display().to_string(),
            "device": format!("{major}:{minor}"),
            "dead": true,
        })
    };
    Ok(dead_mounts(&served)?.into_iter().map(row).collect())
}

/// Sorts the mounts. Returns the lines that show them.
pub fn report(mounts: &mut [Value], verbose: bool) -> Vec<String> {
    mounts.sort_by(|a, b| text(a, "dir").cmp(text(b, "dir")));
    mounts
        .iter()
        .flat_map(|mount| lines(mount, verbose))
        .flat_map(|line| folded(&line))
        .collect()
}

const WIDTH: usize = 80;

/// Wraps a line between words, and indents the continuation.
fn folded(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = lines.last_mut();
        let Some(last) = last.filter(|last| fits(last, word)) else {
            // A second blank between columns splits off an empty word.
            if !word.trim().is_empty() {
                lines.push(format!("    {word}"));
            }
            continue;
        };
        last.push_str(word);
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_string())
        .collect()
}

/// Returns whether a word fits into the line. The first word of a line always does.
fn fits(line: &str, word: &str) -> bool {
    line.trim().is_empty() || line.chars().count() + word.trim_end().chars().count() <= WIDTH
}

fn is(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the line with the memory for cached blocks and the limit of the process. Returns `None`
/// if only the machine limits the memory, unless `verbose` is set.
fn budget(mount: &Value, verbose: bool) -> Option<String> {
    let cache = human(number(mount, "cache_bytes"));
    let limit = human(number(mount, "memory_limit_bytes"));
    let line = match mount.get("memory_limit_by")? {
        Value::String(by) => format!("  {cache} for cached blocks, of {limit} by {by}"),
        _ if verbose => format!("  {cache} for cached blocks, of {limit} of this machine"),
        _ => return None,
    };
    Some(printable(&line).to_string())
}

/// Returns the line with the missing measures of the process's sandbox or, with `verbose`, with all
/// measures.
fn sandbox(mount: &Value, verbose: bool) -> Option<String> {
    let Some(measures) = mount.get("sandbox").and_then(Value::as_object) else {
        return verbose.then(|| "  no sandbox".to_string());
    };
    let shown = measures.iter().filter_map(|(name, measure)| {
        let (state, detail) = (text(measure, "state"), text(measure, "detail"));
        let name = name.replace('_', " ");
        match state {
            "on" => verbose.then(|| format!("{name} {detail}")),
            "partly" => Some(format!("{name} in part ({detail})")),
            _ => Some(format!("no {name} ({detail})")),
        }
    });
    let shown: Vec<_> = shown.collect();
    let line = format!("  sandbox: {}", shown.join("; "));
    (!shown.is_empty()).then(|| printable(&line).to_string())
}

/// Formats a mount: a line about the mount, one about its memory and one about fetched data.
fn lines(mount: &Value, verbose: bool) -> Vec<String> {
    let (dir, image) = (text(mount, "dir"), text(mount, "image"));
    let memory = human(number(mount, "memory_bytes"));
    let pid = number(mount, "pid");
    if mount.get("answering").and_then(Value::as_bool) == Some(false) {
        let place = match dir {
            "" => "a mount".to_owned(),
            dir => format!("{dir}  {image}"),
        };
        let seconds = ANSWER_TIMEOUT.as_secs();
        let line = format!("{place}  pid {pid}  not answering for {seconds} s");
        return vec![printable(&line).to_string()];
    }
    if is(mount, "dead") {
        let line = format!(
            "{dir}  {image}  dead: no process serves it (forerun umount --dead removes it)"
        );
        return vec![printable(&line).to_string()];
    }
    let line = format!("{dir}  {image}  pid {pid}  {memory}");
    let mut lines = vec![printable(&line).to_string()];
    lines.extend(budget(mount, verbose));
    lines.extend(sandbox(mount, verbose));
    let Some(remote) = mount.get("remote").filter(|remote| !remote.is_null()) else {
        return lines;
    };
    lines.push(fetched(remote));
    lines.extend(last_error(remote));
    let layers = mount.get("remote_layers").and_then(Value::as_array);
    for layer in layers.into_iter().flatten() {
        let mut line = format!("  layer: {}", fetched(layer).trim_start());
        if text(layer, "verified_by") == "whole" {
            line.push_str(", verified as a whole");
        }
        lines.push(line);
    }
    lines
}

/// Describes how much of a remote image is cached, and how it is verified.
fn fetched(remote: &Value) -> String {
    let (len, local) = (number(remote, "bytes"), number(remote, "local_bytes"));
    let percent = local.saturating_mul(100) / len.max(1);
    let mut line = format!("  {percent} % of {} here", human(len));
    if is(remote, "complete") {
        line = format!("  all of {} here", human(len));
        if is(remote, "detached") {
            line.push_str(", no network needed");
        }
    } else {
        let rate = human(number(remote, "bytes_per_second"));
        let queued = number(remote, "queued");
        let background = number(remote, "queued_background");
        let ahead = number(remote, "queued_ahead").saturating_add(background);
        let flying = number(remote, "in_flight");
        line += &format!(
            ", {rate}/s, {flying} requests under way, {queued} chunks waited for, {ahead} to come"
        );
    }
    match text(remote, "verified_by") {
        "contents" => line.push_str(", parts verified by a table of contents"),
        "layers" => {}
        _ if !is(remote, "verified") => line.push_str(", unverified"),
        _ => {}
    }
    let errors = number(remote, "errors");
    if errors > 0 {
        line += &format!(", {errors} errors");
    }
    line
}

/// Returns a line with the last error of an incomplete remote image.
fn last_error(remote: &Value) -> Option<String> {
    let last = text(remote, "last_error");
    let is_shown = !last.is_empty() && !is(remote, "complete");
    is_shown.then(|| printable(&format!("  last error: {last}")).to_string())
}

pub fn total(mounts: &[Value]) -> String {
    let of_each = mounts.iter().map(|mount| number(mount, "memory_bytes"));
    let memory = of_each.fold(0, u64::saturating_add);
    let mut total = format!(
        "{}, {} of memory",
        counted(count_of(mounts.len()), "mount", "mounts"),
        human(memory)
    );
    let alone = by_the_kernel_alone(mounts);
    if alone > 0 {
        total += &format!("; {alone} more by the kernel alone, which need no process");
    }
    total
}

/// Counts forerun's mounts that the kernel alone serves.
fn by_the_kernel_alone(served: &[Value]) -> usize {
    let all = forerun_sys::mount_table::mounts().unwrap_or_default();
    let alone = all.iter().filter(|entry| {
        let (major, minor) = entry.device;
        let device = format!("{major}:{minor}");
        forerun_kernel::is_ours(&entry.fstype, &entry.source)
            && served.iter().all(|mount| text(mount, "device") != device)
    });
    alone.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_between_words() {
        let line = format!(
            "/mnt/{}  /srv/{}  pid 12  3.0 MiB",
            "a".repeat(30),
            "b".repeat(30)
        );
        let lines = folded(&line);
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.len(), 2, "{lines:?}");
        let long = format!("/mnt  {}  pid 12", "b".repeat(100));
        assert_eq!(
            folded(&long),
            ["/mnt", &format!("    {}", "b".repeat(100)), "    pid 12"]
        );
        assert_eq!(folded("  last error: no"), ["  last error: no"]);
    }

    #[test]
    fn numbers_that_a_process_makes_up_are_shown_and_end_nothing() {
        let mount = json!({
            "dir": "/mnt", "memory_bytes": u64::MAX, "cache_bytes": u64::MAX,
            "remote": {
                "bytes": 1, "local_bytes": u64::MAX,
                "queued_ahead": u64::MAX, "queued_background": u64::MAX,
            },
        });
        let mut mounts = [mount.clone(), mount];
        let lines = report(&mut mounts, true);
        let indented = lines.iter().filter(|line| line.starts_with("    "));
        assert_eq!(lines.len() - indented.count(), 6, "{lines:?}");
        assert!(total(&mounts).starts_with("2 mounts, "));
    }
}
