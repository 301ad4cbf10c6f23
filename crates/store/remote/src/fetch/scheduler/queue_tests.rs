//! Tests of the queue: order, merging and limits.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use std::time::Instant;

use super::*;

const K: u64 = 1 << 10;

/// An image with some present chunks, in parts of a fixed number of chunks.
struct Image {
    here: Vec<Range<u64>>,
    part: u64,
}

impl View for Image {
    fn present(&self, chunks: Range<u64>) -> Vec<Range<u64>> {
        let cut = |run: &Range<u64>| run.start.max(chunks.start)..run.end.min(chunks.end);
        self.here
            .iter()
            .map(cut)
            .filter(|run| !run.is_empty())
            .collect()
    }

    fn part_end(&self, chunk: u64) -> u64 {
        (chunk / self.part + 1) * self.part
    }
}

const EMPTY: Image = Image {
    here: Vec::new(),
    part: 1 << 40,
};

/// Creates a queue with chunks of 64 KiB. A demand request has at most 16 of them, readahead 32,
/// background 64.
fn queue(requests: usize) -> Queue {
    Queue::new(64 << 10, requests)
}

fn job(queue: &mut Queue, image: &Image) -> Option<(Range<u64>, Class)> {
    queue.next(image).map(|job| (job.chunks, job.class))
}

#[test]
fn demand_comes_before_readahead_before_lists_before_the_rest() {
    let mut queue = queue(8);
    queue.background(0..1000);
    queue.listed([500..502, 400..401]);
    queue.ahead(1, 300..310);
    queue.demand(700);
    assert_eq!(job(&mut queue, &EMPTY), Some((700..701, Class::Demand)));
    assert_eq!(job(&mut queue, &EMPTY), Some((300..310, Class::Ahead)));
    assert_eq!(job(&mut queue, &EMPTY), Some((500..502, Class::Listed)));
    queue.demand(701);
    assert_eq!(job(&mut queue, &EMPTY), Some((701..702, Class::Demand)));
    assert_eq!(job(&mut queue, &EMPTY), Some((400..401, Class::Listed)));
    // Five requests are in flight, more than half of the limit, so the background waits.
    assert_eq!(job(&mut queue, &EMPTY), None);
    queue.ended();
    assert_eq!(job(&mut queue, &EMPTY), Some((0..64, Class::Background)));
    assert_eq!(queue.depth().in_flight, 5);
}

#[test]
fn adjacent_chunks_become_one_request_with_the_demanded_one_first() {
    let mut queue = queue(8);
    queue.ahead(1, 10..100);
    queue.demand(5);
    queue.demand(6);
    queue.demand(9);
    assert_eq!(job(&mut queue, &EMPTY), Some((5..7, Class::Demand)));
    assert_eq!(job(&mut queue, &EMPTY), Some((9..25, Class::Demand)));
    assert_eq!(job(&mut queue, &EMPTY), Some((25..57, Class::Ahead)));
    queue.demand(58);
    assert_eq!(job(&mut queue, &EMPTY), Some((58..74, Class::Demand)));
    assert_eq!(job(&mut queue, &EMPTY), Some((57..58, Class::Ahead)));
    assert_eq!(job(&mut queue, &EMPTY), Some((74..100, Class::Ahead)));
    assert_eq!(job(&mut queue, &EMPTY), None);
}

#[test]
fn what_is_here_or_on_its_way_is_not_asked_for() {
    let image = Image {
        here: vec![3..5, 20..9000],
        part: 10,
    };
    let mut queue = queue(100);
    let early = queue.demand(4);
    queue.background(0..9010);
    assert_eq!(job(&mut queue, &image), Some((0..3, Class::Background)));
    assert!(early.wait(Instant::now()).unwrap().is_ok());
    // A request ends at the end of a part.
    assert_eq!(job(&mut queue, &image), Some((5..10, Class::Background)));
    queue.demand(7);
    assert_eq!(job(&mut queue, &image), Some((10..20, Class::Background)));
    assert_eq!(
        job(&mut queue, &image),
        Some((9000..9010, Class::Background))
    );
    assert_eq!(job(&mut queue, &image), None);
    assert_eq!(
        queue.depth(),
        Depth {
            in_flight: 4,
            ..Depth::default()
        }
    );
}

#[test]
fn readers_hear_of_their_chunk_alone() {
    let mut queue = queue(8);
    let waiting: Vec<_> = (0..3).map(|chunk| queue.demand(chunk)).collect();
    let same = queue.demand(0);
    assert_eq!(job(&mut queue, &EMPTY), Some((0..3, Class::Demand)));
    queue.landed(0);
    assert!(same.wait(Instant::now()).unwrap().is_ok());
    assert!(waiting[0].wait(Instant::now()).unwrap().is_ok());
    assert!(waiting[1].wait(Instant::now()).is_none());
    let error = RemoteError::NotFound {
        place: "x".to_owned(),
    };
    queue.failed(0..3, Some(&error));
    queue.ended();
    assert!(waiting[1].wait(Instant::now()).unwrap().is_err());
    assert!(waiting[2].wait(Instant::now()).unwrap().is_err());
    // A failed chunk can be requested again.
    queue.demand(1);
    assert_eq!(job(&mut queue, &EMPTY), Some((1..2, Class::Demand)));
}

#[test]
fn chunks_that_others_gave_up_are_asked_for_again_while_a_reader_waits() {
    let mut queue = queue(8);
    let waiting = queue.demand(1);
    queue.ahead(1, 2..4);
    assert_eq!(job(&mut queue, &EMPTY), Some((1..4, Class::Demand)));
    queue.failed(1..4, None);
    queue.ended();
    assert!(waiting.wait(Instant::now()).is_none());
    // The others are still queued for readahead and are merged into the request.
    assert_eq!(job(&mut queue, &EMPTY), Some((1..4, Class::Demand)));
}

#[test]
fn stale_readahead_goes_and_hints_are_bounded() {
    let mut queue = queue(1);
    queue.ahead(1, 0..10);
    queue.ahead(2, 100..110);
    queue.cancel(1);
    assert_eq!(job(&mut queue, &EMPTY), Some((100..110, Class::Ahead)));
    assert_eq!(job(&mut queue, &EMPTY), None, "one request at a time");
    for n in 0..10_000 {
        queue.ahead(HINTED, n * 100..n * 100 + 50);
    }
    assert!(queue.depth().ahead <= AHEAD_BYTES_QUEUED / (64 * K));
    queue.close(&RemoteError::NotFound {
        place: String::new(),
    });
    assert_eq!(
        queue.depth(),
        Depth {
            in_flight: 1,
            ..Depth::default()
        }
    );
}

#[test]
fn demand_may_exceed_the_bound_on_requests_once_over() {
    let mut queue = queue(2);
    queue.background(0..10_000);
    let mut begun = 0;
    while queue.next(&EMPTY).is_some() {
        begun += 1;
    }
    assert_eq!(begun, 2);
    for chunk in 5000..5100 {
        queue.demand(chunk * 2);
    }
    while queue.next(&EMPTY).is_some() {
        begun += 1;
    }
    assert_eq!(begun, 4);
}
