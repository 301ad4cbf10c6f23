//! `forerun status`: the mounts that are served, and how they are doing.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Result;
use crate::escape::printable;
use crate::exit::Exit;
use crate::mount::{ask_process, report_directory};
use crate::output::Output;
use crate::remote::human;

/// A process that does not answer within this is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// Show the mounts that are served by processes of yours, and how they are doing
///
/// Of images at servers: how much is here, how fast the rest comes, what is waited for, what failed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun status
  forerun status --watch              again every second, until Ctrl-C
  forerun status --json | jq '.[].remote.local_bytes'")]
pub struct StatusArgs {
    /// Show it again every second, until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
}

/// Runs it.
pub fn run(context: &Context, args: &StatusArgs) -> Result {
    loop {
        let mounts = ask_all(&report_directory());
        let mut out = Output::stdout()?;
        if context.global.json {
            out.json(&json!(mounts))?;
        } else {
            if args.watch && std::io::stdout().is_terminal() {
                // Home, and all below it cleared.
                out.text("\x1b[H\x1b[J")?;
            }
            for mount in &mounts {
                for line in lines(mount) {
                    out.line(line)?;
                }
            }
        }
        out.finish()?;
        if !args.watch {
            context.note(&total(&mounts));
            return Ok(Exit::Ok);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The answers of all that serve, in the order of their directories. Sockets that nobody listens at
/// are removed.
pub fn ask_all(dir: &Path) -> Vec<Value> {
    let mut mounts = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match ask(&path) {
            Ok(mount) => mounts.push(mount),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                let _gone_already = std::fs::remove_file(&path);
            }
            Err(error) => tracing::warn!("{}: {error}", path.display()),
        }
    }
    mounts.sort_by(|a, b| text(a, "dir").cmp(text(b, "dir")));
    mounts
}

fn ask(socket: &Path) -> std::io::Result<Value> {
    Ok(serde_json::from_str(&ask_process(socket, "", PATIENCE)?)?)
}

pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn is(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// A mount, in one line, and one more for what is fetched.
fn lines(mount: &Value) -> Vec<String> {
    let (dir, image) = (text(mount, "dir"), text(mount, "image"));
    let memory = human(number(mount, "memory_bytes"));
    let pid = number(mount, "pid");
    let mut lines = vec![printable(&format!("{dir}  {image}  pid {pid}  {memory}")).to_string()];
    let Some(remote) = mount.get("remote").filter(|remote| !remote.is_null()) else {
        return lines;
    };
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
        let ahead = number(remote, "queued_ahead") + number(remote, "queued_background");
        let flying = number(remote, "in_flight");
        line += &format!(
            ", {rate}/s, {flying} requests under way, {queued} chunks waited for, {ahead} to come"
        );
    }
    if !is(remote, "verified") {
        line.push_str(", unverified");
    }
    let errors = number(remote, "errors");
    if errors > 0 {
        line += &format!(", {errors} errors");
    }
    lines.push(line);
    let last = text(remote, "last_error");
    if !last.is_empty() && !is(remote, "complete") {
        lines.push(printable(&format!("  last error: {last}")).to_string());
    }
    lines
}

fn total(mounts: &[Value]) -> String {
    let memory = mounts
        .iter()
        .map(|mount| number(mount, "memory_bytes"))
        .sum();
    format!("{} mounts, {} of memory", mounts.len(), human(memory))
}
