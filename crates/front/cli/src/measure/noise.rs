//! Other work that the machine did during a measurement.

use std::fs;

use serde_json::{Value, json};

/// A look at the processors' times and the load.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    cpu: CpuTimes,
    own: u64,
    load: f64,
}

/// Times of all processors together, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuTimes {
    all: u64,
    idle: u64,
    /// Time in which the processors of a virtual machine were not there.
    stolen: u64,
}

/// The noise between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The mean number of processes that wanted to run, over the last minute, before and after.
    pub load: (f64, f64),
    /// Share of the processors' time that the hypervisor gave to other machines.
    pub stolen: f64,
    /// Share of it in which others than this process and its children worked. Threads of the kernel that read
    /// and decode for a mount count as others.
    pub others: f64,
}

impl Look {
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu_times(&read("/proc/stat")),
            own: own_time(&read("/proc/self/stat")),
            load: load(&read("/proc/loadavg")),
        }
    }

    /// Returns the noise since then.
    pub fn noise(&self) -> Noise {
        self.until(&Self::now())
    }

    fn until(&self, later: &Self) -> Noise {
        let since = |of: fn(&CpuTimes) -> u64| of(&later.cpu).saturating_sub(of(&self.cpu));
        let all = since(|times| times.all);
        let (idle, stolen) = (since(|times| times.idle), since(|times| times.stolen));
        let own = later.own.saturating_sub(self.own);
        let busy = all.saturating_sub(idle).saturating_sub(stolen);
        Noise {
            load: (self.load, later.load),
            stolen: share(stolen, all),
            others: share(busy.saturating_sub(own), all),
        }
    }
}

impl Noise {
    /// Describes the noise for people.
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

    /// Describes the noise for programs.
    pub fn json(&self) -> Value {
        json!({
            "load_before": self.load.0,
            "load_after": self.load.1,
            "stolen": self.stolen,
            "others": self.others,
        })
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Ticks far below 2^53.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; guests
/// are part of user and nice.
fn cpu_times(stat: &str) -> CpuTimes {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let words = line.unwrap_or_default().split_whitespace().take(8);
    let times: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
    let at = |index: usize| times.get(index).copied().unwrap_or(0);
    CpuTimes {
        all: times.iter().fold(0, |sum, time| sum.saturating_add(*time)),
        idle: at(3).saturating_add(at(4)),
        stolen: at(7),
    }
}

/// Parses `/proc/self/stat`: the times of the process and of its children that were waited for.
fn own_time(stat: &str) -> u64 {
    // Behind the name, which may contain anything, the 12th to 15th field.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(4);
    times.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn load(loadavg: &str) -> f64 {
    let first = loadavg.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_parsed() {
        let stat = "cpu  100 10 40 800 50 1 2 7 0 0\ncpu0 1 2 3\nintr 5\n";
        let expected = CpuTimes {
            all: 1010,
            idle: 850,
            stolen: 7,
        };
        assert_eq!(cpu_times(stat), expected);
        let own = "12 (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 20 3 9 8 20 0 1";
        assert_eq!(own_time(own), 40);
        assert_eq!(load("0.52 0.58 0.59 3/602 19001\n"), 0.52);
        assert_eq!(
            (cpu_times(""), own_time(""), load("")),
            (CpuTimes::default(), 0, 0.0)
        );
    }

    #[test]
    fn others_are_what_is_busy_and_not_our_own() {
        let look = |all, idle, stolen, own| Look {
            cpu: CpuTimes { all, idle, stolen },
            own,
            load: 0.5,
        };
        let noise = look(0, 0, 0, 0).until(&look(1000, 400, 100, 300));
        assert_eq!((noise.stolen, noise.others), (0.1, 0.2));
        // Looks at two files are never of the same moment.
        let noise = look(0, 0, 0, 0).until(&look(1000, 800, 0, 300));
        assert_eq!(noise.others, 0.0);
    }
}
