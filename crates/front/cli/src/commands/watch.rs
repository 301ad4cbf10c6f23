//! `forerun status --watch`: rates of the mounts, from the difference between two reports.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::status::total;
use crate::context::Context;
use crate::error::Result;
use crate::escape::printable;
use crate::json::{number, text};
use crate::output::{Output, terminal_width};
use crate::size::{count_of, counted, human};
use crate::socket::{SHORT_TIMEOUT, ask_all};

const LONGEST: f64 = 86_400.0;
/// Number of intervals in a line of bars.
const HISTORY: usize = 40;
/// Characters of a bar that shows a fill level.
const BAR: usize = 24;

pub fn parse_interval(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| (0.1..=LONGEST).contains(seconds));
    let seconds = seconds.ok_or("not a number of seconds from 0.1 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The counters of a mount from which rates are computed, in the order of the JSON output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Amounts {
    /// Requests from the kernel.
    requests: f64,
    /// Bytes returned to the kernel.
    served_bytes: f64,
    source_requests: f64,
    source_bytes: f64,
    written_bytes: f64,
    /// Cache lookups of data and metadata: those that succeeded, and all.
    hits: f64,
    lookups: f64,
    decodes: f64,
    decoded_bytes: f64,
    fetches: f64,
    fetched_bytes: f64,
}

impl Amounts {
    fn of(mount: &Value) -> Self {
        let null = Value::Null;
        let part = |name: &str| mount.get(name).unwrap_or(&null);
        let counter = |name: &str| number(part("counters"), name);
        let of_fuse = part("fuse_requests").as_object().into_iter();
        let of_fuse = of_fuse.flat_map(Map::values).filter_map(Value::as_u64);
        let hits = sum([counter("cache_hits"), counter("metadata_hits")]);
        let misses = [counter("cache_misses"), counter("metadata_misses")];
        let waits = counter("cache_waits");
        Self {
            requests: float(sum(of_fuse)),
            served_bytes: float(counter("served_bytes")),
            source_requests: float(counter("source_requests")),
            source_bytes: float(counter("source_bytes")),
            written_bytes: float(counter("written_bytes")),
            hits: float(hits),
            lookups: float(sum([hits, waits].into_iter().chain(misses))),
            decodes: float(counter("decodes")),
            decoded_bytes: float(counter("decoded_bytes")),
            fetches: float(number(part("remote"), "requests")),
            fetched_bytes: float(number(part("remote"), "fetched_bytes")),
        }
    }

    fn with(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            requests: of(self.requests, other.requests),
            served_bytes: of(self.served_bytes, other.served_bytes),
            source_requests: of(self.source_requests, other.source_requests),
            source_bytes: of(self.source_bytes, other.source_bytes),
            written_bytes: of(self.written_bytes, other.written_bytes),
            hits: of(self.hits, other.hits),
            lookups: of(self.lookups, other.lookups),
            decodes: of(self.decodes, other.decodes),
            decoded_bytes: of(self.decoded_bytes, other.decoded_bytes),
            fetches: of(self.fetches, other.fetches),
            fetched_bytes: of(self.fetched_bytes, other.fetched_bytes),
        }
    }

    /// Returns the rates since `before`. If counters decreased, another process serves the mount
    /// now, and its counters start at zero.
    fn rates(self, before: Self, seconds: f64) -> Self {
        let began_anew = self.requests < before.requests || self.served_bytes < before.served_bytes;
        let before = if began_anew { Self::default() } else { before };
        self.with(before, |now, then| (now - then).max(0.0) / seconds)
    }

    fn json(self) -> Value {
        let hit_share = (self.lookups > 0.0).then_some(self.hits / self.lookups);
        json!({
            "requests": self.requests,
            "served_bytes": self.served_bytes,
            "source_requests": self.source_requests,
            "source_bytes": self.source_bytes,
            "written_bytes": self.written_bytes,
            "hits": self.hits,
            "lookups": self.lookups,
            "hit_share": hit_share,
            "decodes": self.decodes,
            "decoded_bytes": self.decoded_bytes,
            "fetches": self.fetches,
            "fetched_bytes": self.fetched_bytes,
        })
    }

    fn words(self) -> String {
        let mut words = format!(
            "{}/s  served {}/s  read {}/s in {}",
            per_second(self.requests, "request", "requests"),
            size(self.served_bytes),
            size(self.source_bytes),
            per_second(self.source_requests, "request", "requests"),
        );
        let mut add = |more: String| {
            words += "  ";
            words += &more;
        };
        if self.written_bytes > 0.0 {
            add(format!("written {}/s", size(self.written_bytes)));
        }
        if self.lookups > 0.0 {
            add(format!("hits {:.0} %", self.hits / self.lookups * 100.0));
        }
        add(format!(
            "{}/s",
            per_second(self.decodes, "decode", "decodes")
        ));
        if self.fetches > 0.0 || self.fetched_bytes > 0.0 {
            let fetches = per_second(self.fetches, "request", "requests");
            add(format!(
                "fetched {}/s in {fetches}",
                size(self.fetched_bytes)
            ));
        }
        words
    }
}

#[derive(Debug, Default)]
struct Seen {
    amounts: Amounts,
    at: Option<Instant>,
    /// Bytes served per second, in the last intervals.
    served: VecDeque<f64>,
    /// The round in which the mount was last reported.
    round: u64,
}

/// Shows the mounts repeatedly. Returns only with an error, such as a closed pipe.
pub fn run(context: &Context, interval: Duration) -> Result {
    let mut seen: HashMap<String, Seen> = HashMap::new();
    for round in 0_u64.. {
        let answers = ask_all(SHORT_TIMEOUT).answers.into_iter();
        let mut mounts: Vec<_> = answers.map(|told| told.mount).collect();
        mounts.sort_by(|a, b| text(a, "dir").cmp(text(b, "dir")));
        let rates: Vec<_> = mounts
            .iter()
            .map(|mount| observe(&mut seen, mount, round))
            .collect();
        seen.retain(|_, seen| seen.round == round);
        let mut out = Output::stdout()?;
        if context.global.json {
            if round > 0 {
                out.line(object(&mounts, &rates, interval).to_string())?;
            }
        } else if out.is_terminal {
            out.text(drawing(&mounts, &rates, &seen, interval))?;
        } else if round > 0 {
            out.line(line(&mounts, &rates))?;
        }
        out.finish()?;
        std::thread::sleep(interval);
    }
    Ok(crate::exit::Exit::Ok)
}

fn key(mount: &Value) -> String {
    format!("{} {}", text(mount, "device"), text(mount, "dir"))
}

fn observe(seen: &mut HashMap<String, Seen>, mount: &Value, round: u64) -> Option<Amounts> {
    let (now, amounts) = (Instant::now(), Amounts::of(mount));
    let seen = seen.entry(key(mount)).or_default();
    let since = seen.at.replace(now).map(|then| now.duration_since(then));
    let before = std::mem::replace(&mut seen.amounts, amounts);
    seen.round = round;
    let rates = amounts.rates(before, since?.as_secs_f64().max(0.001));
    seen.served.push_back(rates.served_bytes);
    if seen.served.len() > HISTORY {
        seen.served.pop_front();
    }
    Some(rates)
}

fn object(mounts: &[Value], rates: &[Option<Amounts>], interval: Duration) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mounts = mounts.iter().zip(rates).map(|(mount, rates)| {
        let mut mount = mount.clone();
        if let Some(fields) = mount.as_object_mut() {
            fields.insert("rates".into(), rates.map_or(Value::Null, Amounts::json));
        }
        mount
    });
    json!({
        "time": since.map_or(0.0, |since| since.as_secs_f64()),
        "interval_seconds": interval.as_secs_f64(),
        "mounts": mounts.collect::<Vec<_>>(),
    })
}

/// Returns the line of an interval: the sums over all mounts.
fn line(mounts: &[Value], rates: &[Option<Amounts>]) -> String {
    let all = rates
        .iter()
        .flatten()
        .fold(Amounts::default(), |all, rates| {
            all.with(*rates, |a, b| a + b)
        });
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let count = counted(count_of(mounts.len()), "mount", "mounts");
    let cached = mounts.iter().map(|mount| number(mount, "cached_bytes"));
    let cached = human(sum(cached));
    format!("{time}  {count}  {}  cached {cached}", all.words())
}

/// Returns the text that redraws the terminal with all mounts.
fn drawing(
    mounts: &[Value],
    rates: &[Option<Amounts>],
    seen: &HashMap<String, Seen>,
    interval: Duration,
) -> String {
    let mut lines = vec![format!(
        "{}, every {} s; Ctrl-C ends",
        total(mounts),
        interval.as_secs_f64()
    )];
    for (mount, rates) in mounts.iter().zip(rates) {
        lines.push(String::new());
        let (dir, image) = (text(mount, "dir"), text(mount, "image"));
        lines.push(printable(&format!(
            "{dir}  {image}  pid {}",
            number(mount, "pid")
        )));
        match rates {
            Some(rates) => lines.push(format!("  {}", rates.words())),
            None => lines.push("  ...".into()),
        }
        if let Some(cached) = mount.get("cached_bytes").and_then(Value::as_u64) {
            lines.push(fill("cache", cached, number(mount, "cache_bytes")));
        }
        if let Some(remote) = mount.get("remote").filter(|remote| !remote.is_null()) {
            lines.push(fill(
                "here",
                number(remote, "local_bytes"),
                number(remote, "bytes"),
            ));
        }
        if let Some(seen) = seen.get(&key(mount)).filter(|seen| !seen.served.is_empty()) {
            lines.push(format!("  served {}", bars(&seen.served)));
        }
    }
    let width = terminal_width();
    // Moves the cursor home. Each line erases its rest, and the last one the rest of the screen.
    let mut text = String::from("\x1b[H");
    for line in lines {
        text.extend(line.chars().take(width.saturating_sub(1)));
        text += "\x1b[K\n";
    }
    text += "\x1b[J";
    text
}

fn fill(what: &str, now: u64, most: u64) -> String {
    let share = u128::from(now.min(most)) * 1000 / u128::from(most.max(1));
    let tenths = usize::try_from(share).unwrap_or(0);
    let full = (tenths * BAR).div_ceil(1000);
    let bar: String = (0..BAR)
        .map(|at| if at < full { '#' } else { '-' })
        .collect();
    let percent = tenths / 10;
    format!(
        "  {what:<6} [{bar}] {percent} %, {} of {}",
        human(now),
        human(most)
    )
}

/// Draws values as a line of bars. The largest value has the full height of a character.
fn bars(values: &VecDeque<f64>) -> String {
    const BARS: [char; 9] = [
        ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
        '\u{2588}',
    ];
    let most = values.iter().fold(0.0_f64, |most, value| most.max(*value));
    let mut text = String::new();
    for value in values {
        let height = if most > 0.0 { value / most * 8.0 } else { 0.0 };
        let level = (0_u8..8).filter(|level| f64::from(*level) < height).count();
        text.push(BARS.get(level).copied().unwrap_or(' '));
    }
    // Writing to a string cannot fail.
    let _ = write!(text, " up to {}/s", size(most));
    text
}

fn per_second(n: f64, one: &str, many: &str) -> String {
    match n {
        n if n < 10.0 => format!("{n:.1} {many}"),
        n => counted(whole(n), one, many),
    }
}

fn size(bytes: f64) -> String {
    human(whole(bytes))
}

fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Converts a counter. Digits beyond the sixteenth do not matter.
#[allow(clippy::as_conversions)] // Only digits beyond the sixteenth are lost.
const fn float(n: u64) -> f64 {
    n as f64
}

/// Rounds a rate, which is not negative.
#[allow(clippy::as_conversions)] // It saturates, and a fraction does not matter.
const fn whole(n: f64) -> u64 {
    n as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(requests: u64, served: u64) -> Value {
        json!({
            "dir": "/mnt", "device": "0:1", "image": "a.img", "pid": 7,
            "cache_bytes": 100, "cached_bytes": 25,
            "fuse_requests": { "read": requests, "lookup": 1 },
            "counters": { "served_bytes": served, "cache_hits": 3, "cache_misses": 1 },
            "remote": { "requests": 2, "fetched_bytes": u64::MAX, "bytes": 10, "local_bytes": 5 },
        })
    }

    #[test]
    fn rates_are_differences() {
        let (before, now) = (Amounts::of(&mount(9, 1000)), Amounts::of(&mount(29, 5000)));
        let rates = now.rates(before, 2.0);
        assert_eq!((rates.requests, rates.served_bytes), (10.0, 2000.0));
        assert_eq!((rates.lookups, rates.fetched_bytes), (0.0, 0.0));
        // Another process counts from zero.
        let rates = before.rates(now, 1.0);
        assert_eq!((rates.requests, rates.served_bytes), (10.0, 1000.0));
        assert_eq!((rates.hits, rates.lookups), (3.0, 4.0));
    }

    #[test]
    fn a_mount_is_drawn() {
        let mut seen = HashMap::new();
        assert_eq!(observe(&mut seen, &mount(1, 1), 0), None);
        let mounts = [mount(5, 9)];
        let rates = [observe(&mut seen, &mounts[0], 1)];
        assert!(rates[0].is_some());
        let drawn = drawing(&mounts, &rates, &seen, Duration::from_secs(1));
        for words in [
            "/mnt  a.img  pid 7",
            "[######--",
            "25 %",
            "[############-",
            "\u{2588}",
        ] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
        let told = object(&mounts, &rates, Duration::from_secs(1));
        assert!(told["mounts"][0]["rates"]["requests"].as_f64().unwrap() > 0.0);
        assert!(line(&mounts, &rates).contains("  1 mount  "));
    }

    #[test]
    fn absurd_numbers_are_shown_and_end_nothing() {
        let odd = json!({
            "dir": "\x1b[31m\n", "cache_bytes": 0, "cached_bytes": u64::MAX,
            "fuse_requests": { "read": u64::MAX, "lookup": u64::MAX }, "counters": 7, "remote": [],
        });
        let mut seen = HashMap::new();
        observe(&mut seen, &odd, 0);
        let mounts = [odd];
        let rates = [observe(&mut seen, &mounts[0], 1)];
        let drawn = drawing(&mounts, &rates, &seen, Duration::from_secs(1));
        assert!(!drawn.contains("\x1b[31m"), "{drawn}");
        object(&mounts, &rates, Duration::from_secs(1));
    }

    #[test]
    fn intervals() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "nan", "inf", "1e9", "x", ""] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
