//! Other activity of the machine during a measurement.

use std::fs;

use serde_json::{Value, json};

/// A snapshot of the load and of the CPU times of all processors in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    load: f64,
    all: u64,
    idle: u64,
    /// Time that the hypervisor gave to other virtual machines.
    stolen: u64,
    /// Time of this process and of its children that were waited for.
    own: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Mean number of runnable processes over the last minute, before and after the measurement.
    pub load: (f64, f64),
    /// Share of the CPU time that the hypervisor gave to other machines.
    pub stolen: f64,
    /// Share of the CPU time used by processes other than this one and its children. Kernel threads
    /// that read and decode for a mount count as others.
    pub others: f64,
}

impl Look {
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::parse(
            &read("/proc/stat"),
            &read("/proc/self/stat"),
            &read("/proc/loadavg"),
        )
    }

    /// Parses the first line of `/proc/stat` (user, nice, system, idle, iowait, irq, softirq,
    /// steal; guests are part of user and nice), fields 12 to 15 after the name, which may contain
    /// anything, of `/proc/self/stat`, and the first field of `/proc/loadavg`.
    fn parse(stat: &str, own: &str, loadavg: &str) -> Self {
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_whitespace();
            words.map(|word| word.parse().unwrap_or(0)).collect()
        };
        let cpu = numbers(
            stat.lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("cpu"),
        );
        let at = |index: usize| cpu.get(index).copied().unwrap_or(0);
        let own = numbers(own.rsplit(')').next().unwrap_or_default());
        let load = loadavg.split_whitespace().next();
        Self {
            load: load.and_then(|load| load.parse().ok()).unwrap_or(0.0),
            all: cpu.iter().take(8).sum(),
            idle: at(3) + at(4),
            stolen: at(7),
            own: own.iter().skip(11).take(4).sum(),
        }
    }

    pub fn noise(&self) -> Noise {
        self.until(&Self::now())
    }

    /// The two files are read at different moments, so a difference may be below 0.
    fn until(&self, later: &Self) -> Noise {
        let since = |of: fn(&Self) -> u64| of(later).saturating_sub(of(self));
        let (all, stolen) = (since(|look| look.all), since(|look| look.stolen));
        let others = all.saturating_sub(since(|look| look.idle + look.stolen + look.own));
        Noise {
            load: (self.load, later.load),
            stolen: share(stolen, all),
            others: share(others, all),
        }
    }
}

impl Noise {
    pub fn text(&self) -> String {
        format!(
            "load {:.2} before and {:.2} after; of the processors' time the hypervisor took {:.0} %, other \
             processes and kernel threads {:.0} %",
            self.load.0,
            self.load.1,
            self.stolen * 100.0,
            self.others * 100.0
        )
    }

    pub fn json(&self) -> Value {
        json!({
            "load_before": self.load.0,
            "load_after": self.load.1,
            "stolen": self.stolen,
            "others": self.others,
        })
    }
}

#[allow(clippy::as_conversions)] // Ticks far below 2^53.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_parsed() {
        let stat = "cpu  100 10 40 800 50 1 2 7 0 0\ncpu0 1 2 3\nintr 5\n";
        let own = "12 (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 20 3 9 8 20 0 1";
        let expected = Look {
            load: 0.52,
            all: 1010,
            idle: 850,
            stolen: 7,
            own: 40,
        };
        assert_eq!(
            Look::parse(stat, own, "0.52 0.58 0.59 3/602 19001\n"),
            expected
        );
        assert_eq!(Look::parse("", "", ""), Look::default());
    }

    #[test]
    fn others_are_what_is_busy_and_not_our_own() {
        let noise = |idle, stolen, own| {
            let later = Look {
                load: 0.5,
                all: 1000,
                idle,
                stolen,
                own,
            };
            let noise = Look::default().until(&later);
            (noise.stolen, noise.others)
        };
        assert_eq!(noise(400, 100, 300), (0.1, 0.2));
        assert_eq!(noise(800, 0, 300), (0.0, 0.0));
    }
}
