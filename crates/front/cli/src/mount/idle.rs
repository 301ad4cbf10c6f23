//! Ends an unused mount after a time without requests.

use std::time::{Duration, Instant};

use forerun_fuse::{Monitor, Mount, Operation, Unmounted};

use super::failed;
use crate::error::Result;

/// Interval at which requests are counted.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts a thread that unmounts once the kernel has sent no request for `time` and the mount is
/// not in use.
pub fn watch(mount: &Mount, time: Duration) -> Result<()> {
    let (monitor, unmounter) = (mount.monitor(), mount.unmounter());
    let thread = std::thread::Builder::new().name("idle".to_string());
    let watching = thread.stack_size(128 << 10).spawn(move || {
        let (mut before, mut since) = (requests(&monitor), Instant::now());
        // Without a count, the mount has ended.
        while before.is_some() {
            std::thread::sleep(INTERVAL.min(time));
            let now = requests(&monitor);
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() >= time {
                match unmounter.unmount_unused() {
                    Ok(Unmounted::Done) => return tracing::info!("unmounted: it was idle"),
                    Ok(Unmounted::StillInUse) => since = Instant::now(),
                    Err(error) => return tracing::error!("{error}"),
                }
                // Requests caused by the attempt to unmount do not count as use.
                before = requests(&monitor);
            }
        }
    });
    watching.map_err(|error| failed("watching for an idle mount", &error))?;
    Ok(())
}

/// Returns how many requests the kernel has sent, or `None` once the mount has ended.
fn requests(monitor: &Monitor) -> Option<u64> {
    let (_, requests) = monitor.counters()?;
    let counted = requests
        .iter()
        .filter(|(kind, _)| !matches!(kind, Operation::Store | Operation::Followed));
    Some(counted.map(|(_, count)| count).sum())
}
