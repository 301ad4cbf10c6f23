//! The report of a mount for Prometheus, over HTTP.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use forerun::unstable::remote::RemoteStatus;

use super::MountArgs;
use super::report::{Report, memory};
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Starts to serve metrics if the arguments ask for that. A mount that was taken over is in use, so
/// it continues without metrics if this fails.
pub fn begin(report: &Arc<Report>, args: &MountArgs, is_successor: bool) -> Result<()> {
    let Some(address) = &args.metrics else {
        return Ok(());
    };
    let report = Arc::clone(report);
    match forerun::unstable::remote::serve_metrics(address, move || page(&report)) {
        Ok(bound) => tracing::info!(%bound, "serving metrics"),
        Err(error) if is_successor => tracing::error!("no metrics: {error}"),
        Err(error) => return Err(Failure::new(Exit::Mount, "metrics", format!("{error}"))),
    }
    Ok(())
}

fn page(report: &Report) -> String {
    let Some((engine, requests)) = report.shown.monitor.counters() else {
        return String::new();
    };
    let mut page = Page {
        text: String::new(),
        label: format!("image=\"{}\"", escaped(&report.image)),
    };
    page.put("memory_bytes", "gauge", memory());
    for (counter, value) in engine.iter() {
        page.put(&format!("{}_total", counter.name()), "counter", value);
    }
    for (operation, count) in requests.iter() {
        let kind = format!("kind=\"{}\"", operation.name());
        page.put_labelled("fuse_requests_total", "counter", &kind, count);
    }
    let layers = report.remotes.iter().map(|image| image.status());
    if let Some(all) = RemoteStatus::of_all(layers) {
        put_remote(&mut page, &all);
    }
    page.text
}

fn put_remote(page: &mut Page, status: &RemoteStatus) {
    let flag = |on: bool| u64::from(on);
    for (name, value) in [
        ("remote_image_bytes", status.len),
        ("remote_local_bytes", status.local_bytes),
        ("remote_complete", flag(status.complete)),
        ("remote_verified", flag(status.verified)),
        ("remote_bytes_per_second", status.rate),
        ("remote_in_flight", status.in_flight),
        ("remote_queued_demand", status.demand_queue),
        ("remote_queued_ahead", status.readahead_queue),
        ("remote_queued_background", status.background_queue),
    ] {
        page.put(name, "gauge", value);
    }
    for (name, value) in [
        ("remote_fetched_bytes_total", status.fetched_bytes),
        ("remote_refetched_bytes_total", status.refetched_bytes),
        ("remote_wrong_bytes_total", status.wrong_bytes),
        ("remote_adopted_bytes_total", status.adopted_bytes),
        ("remote_altered_chunks_total", status.altered_chunks),
        ("remote_requests_total", status.requests),
        ("remote_errors_total", status.errors),
        ("remote_retries_total", status.retries),
        ("remote_waits_total", status.waits),
    ] {
        page.put(name, "counter", value);
    }
    let waited = format!("{:.6}", status.waited.as_secs_f64());
    page.put("remote_waited_seconds_total", "counter", waited);
}

/// A page for Prometheus, with a label that all values have.
struct Page {
    text: String,
    label: String,
}

impl Page {
    fn put(&mut self, name: &str, kind: &str, value: impl Display) {
        self.put_labelled(name, kind, "", value);
    }

    /// Writes a value with one more label.
    fn put_labelled(&mut self, name: &str, kind: &str, more: &str, value: impl Display) {
        let head = format!("# TYPE forerun_{name} {kind}\n");
        if !self.text.contains(&head) {
            self.text.push_str(&head);
        }
        let comma = if more.is_empty() { "" } else { "," };
        let label = &self.label;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "forerun_{name}{{{label}{comma}{more}}} {value}");
    }
}

/// Escapes a label's value as the format requires.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
