//! Totals over time for a trace of unknown length. When the trace outgrows the bins, each pair of
//! bins is merged.

pub const BINS: usize = 1024;

/// Maximum time in microseconds (35 years); later times are clamped.
const LATEST: u64 = 1 << 50;
/// Maximum request length in bytes; longer requests are clamped.
const LONGEST: u64 = 1 << 48;

/// Bytes in flight over time, as a step function: it rises at the start of a request and falls at
/// its end.
#[derive(Clone, Debug)]
struct Flight {
    /// For each bin, the byte-microseconds within the bin of the steps that lie in it.
    area: Vec<i128>,
    /// For each bin, the change in bytes in flight that the steps in the previous bin cause from
    /// the start of this one.
    rate: Vec<i128>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    pub hits: u64,
    /// Found in flight.
    pub waits: u64,
    pub misses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Requests to the image or device.
    Device,
    Server,
}

#[derive(Clone, Debug)]
pub struct Timeline {
    pub width: u64,
    device: Flight,
    server: Flight,
    lookups: Vec<Lookups>,
}

impl Default for Timeline {
    fn default() -> Self {
        let flight = Flight {
            area: vec![0; BINS],
            rate: vec![0; BINS + 1],
        };
        Self {
            width: 1,
            device: flight.clone(),
            server: flight,
            lookups: vec![Lookups::default(); BINS],
        }
    }
}

impl Timeline {
    pub fn request(&mut self, link: Link, start: u64, end: u64, len: u64) {
        let (start, end) = (start.min(end).min(LATEST), end.min(LATEST));
        self.reach(end);
        let (width, len) = (self.width, i128::from(len.min(LONGEST)));
        let flight = match link {
            Link::Device => &mut self.device,
            Link::Server => &mut self.server,
        };
        flight.step(width, start, len);
        flight.step(width, end, -len);
    }

    pub fn lookup(&mut self, at: u64, found: Lookups) {
        let at = at.min(LATEST);
        self.reach(at);
        if let Some(sums) = self.lookups.get_mut(index(at, self.width)) {
            *sums = sums.and(found);
        }
    }

    /// Returns the mean bytes in flight in each bin.
    pub fn in_flight(&self, link: Link) -> Vec<u64> {
        let flight = match link {
            Link::Device => &self.device,
            Link::Server => &self.server,
        };
        let width = i128::from(self.width);
        let mut rate = 0;
        let bins = flight.area.iter().zip(&flight.rate);
        let means = bins.map(|(area, added)| {
            rate += added;
            u64::try_from((area + rate * width) / width).unwrap_or(0)
        });
        means.collect()
    }

    pub fn lookups(&self) -> &[Lookups] {
        &self.lookups
    }

    /// Widens the bins until they cover `at`.
    fn reach(&mut self, at: u64) {
        while index(at, self.width) >= BINS {
            self.device.double(self.width);
            self.server.double(self.width);
            let pairs = self.lookups.chunks(2);
            let mut lookups: Vec<_> = pairs
                .map(|pair| pair.iter().fold(Lookups::default(), |a, b| a.and(*b)))
                .collect();
            lookups.resize(BINS, Lookups::default());
            self.lookups = lookups;
            self.width *= 2;
        }
    }
}

impl Lookups {
    pub const fn and(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            waits: self.waits + other.waits,
            misses: self.misses + other.misses,
        }
    }
}

impl Flight {
    fn step(&mut self, width: u64, at: u64, len: i128) {
        let bin = index(at, width);
        let left = i128::from(width - at % width);
        if let (Some(area), Some(rate)) = (self.area.get_mut(bin), self.rate.get_mut(bin + 1)) {
            *area += len * left;
            *rate += len;
        }
    }

    fn double(&mut self, width: u64) {
        let (old_area, old_rate) = (self.area.clone(), self.rate.clone());
        let at = |values: &[i128], index: usize| values.get(index).copied().unwrap_or(0);
        for (bin, area) in self.area.iter_mut().enumerate() {
            let (first, second) = (2 * bin, 2 * bin + 1);
            let of_second = at(&old_rate, second) * i128::from(width);
            // `rate[BINS]` belongs to no bin.
            let of_second = if second < BINS { of_second } else { 0 };
            *area = at(&old_area, first) + at(&old_area, second) + of_second;
        }
        for (bin, rate) in self.rate.iter_mut().enumerate() {
            let before = (2 * bin).checked_sub(1);
            *rate = at(&old_rate, 2 * bin) + before.map_or(0, |before| at(&old_rate, before));
        }
    }
}

fn index(at: u64, width: u64) -> usize {
    forerun_io::usize_from(at / width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(timeline: &Timeline) -> u64 {
        let means = timeline.in_flight(Link::Device);
        means.iter().map(|mean| mean * timeline.width).sum()
    }

    #[test]
    fn the_area_stays_the_same_when_bins_become_wider() {
        let mut timeline = Timeline::default();
        timeline.request(Link::Device, 10, 20, 4096);
        timeline.request(Link::Device, 15, 1023, 4096);
        timeline.request(Link::Device, 7, 7, 4096);
        assert_eq!(total(&timeline), 4096 * (10 + 1008));
        assert_eq!(timeline.in_flight(Link::Device).get(16), Some(&8192));
        for (end, width) in [(1024, 2), (2050, 4), (1_000_000, 1024)] {
            let before = total(&timeline);
            timeline.request(Link::Device, end - 1, end, 4096);
            assert_eq!(timeline.width, width);
            let after = total(&timeline);
            assert!(
                after.abs_diff(before + 4096) < 1024 * width,
                "{before} {after}"
            );
        }
        assert_eq!(timeline.in_flight(Link::Server), vec![0; BINS]);
    }

    #[test]
    fn absurd_numbers_end_nothing() {
        let mut timeline = Timeline::default();
        let one = Lookups {
            hits: 1,
            ..Lookups::default()
        };
        timeline.lookup(0, one);
        for _ in 0..3 {
            timeline.request(Link::Server, u64::MAX, 0, u64::MAX);
            timeline.request(Link::Server, 0, u64::MAX, u64::MAX);
            timeline.lookup(u64::MAX, one);
        }
        let all = timeline
            .lookups()
            .iter()
            .fold(Lookups::default(), |a, b| a.and(*b));
        assert_eq!(all.hits, 4);
        assert!(
            timeline
                .in_flight(Link::Server)
                .iter()
                .any(|&mean| mean > 0)
        );
    }
}
