//! Reports of free memory to the host of a virtual machine, so that none is in a run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The longest time to the end of the next report of free memory, if there is one.
const NEXT_REPORT: Duration = Duration::from_millis(2500);
/// Without an answer of the host for so long, a report has ended.
const END_OF_REPORT: Duration = Duration::from_millis(60);
/// How often the answers of the host are counted meanwhile.
const STEP: Duration = Duration::from_millis(20);

/// Waits for the end of a report of free memory to the host; returns at once on a machine without such reports.
///
/// A report begins two seconds after memory was freed, and the next one two seconds after its end, as long as much is
/// left to report (`PAGE_REPORTING_DELAY` of Linux). A run of a third of a second took up to 1.4 times as long with a
/// report in it, and whether one is depends on what was freed two seconds before: the run before, say, or a digest.
pub fn wait_for_end() {
    let interrupts = || fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let Some(mut last) = answers(&interrupts()) else {
        return;
    };
    let start = Instant::now();
    let mut reported: Option<Instant> = None;
    while start.elapsed() < NEXT_REPORT && reported.is_none_or(|at| at.elapsed() < END_OF_REPORT) {
        thread::sleep(STEP);
        let now = answers(&interrupts()).unwrap_or(last);
        if now != last {
            last = now;
            reported = Some(Instant::now());
        }
    }
}

/// Returns the interrupts by which the host answered reports, of a text of `/proc/interrupts`; `None` for a machine
/// that reports nothing.
fn answers(text: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter(|line| line.ends_with("-reporting_vq"))
        .peekable();
    lines.peek()?;
    let of_line = |line: &str| {
        let counts = line
            .split_whitespace()
            .skip(1)
            .map_while(|count| count.parse::<u64>().ok());
        counts.fold(0, u64::saturating_add)
    };
    Some(lines.map(of_line).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_all_processors_are_counted() {
        let text = "            CPU0       CPU1\n\
                     31:          0       8067 PCI-MSIX-0000:00:01.0   3-edge      virtio0-stats\n\
                     32:      37641          2 PCI-MSIX-0000:00:01.0   4-edge      virtio0-reporting_vq\n";
        assert_eq!(answers(text), Some(37_643));
        for without in ["", "31: 1 virtio0-stats", "32: 1 reporting_vq of another"] {
            assert_eq!(answers(without), None, "{without}");
        }
        assert_eq!(answers("x-reporting_vq"), Some(0));
    }
}
