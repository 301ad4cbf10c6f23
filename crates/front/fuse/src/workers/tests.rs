//! Metadata and data queues: which requests leave a thread free, which go to workers, and that
//! neither queue waits for the other.

use std::sync::{Weak, mpsc};
use std::thread;

use super::*;

#[test]
fn slow_jobs_do_not_hold_up_others() {
    let workers = Workers::new(2);
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let (done, finished) = mpsc::channel();
    // One slow inline job, and twenty more for workers: run() must return each time.
    let first = {
        let (workers, gate, done) = (workers.clone(), Arc::clone(&gate), done.clone());
        thread::spawn(move || {
            workers.run_once(Lane::Metadata, move || {
                gate.lock().unwrap().recv().unwrap();
                done.send("slow").unwrap();
            });
        })
    };
    while workers.shared.inline.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    for _ in 0..20 {
        let (gate, done) = (Arc::clone(&gate), done.clone());
        workers.run_once(Lane::Metadata, move || {
            gate.lock().unwrap().recv().unwrap();
            done.send("slow").unwrap();
        });
    }
    workers.run_once(Lane::Metadata, move || done.send("quick").unwrap());
    assert_eq!(finished.recv().unwrap(), "quick");
    for _ in 0..21 {
        release.send(()).unwrap();
    }
    assert_eq!(finished.iter().filter(|name| *name == "slow").count(), 21);
    first.join().unwrap();
}

#[test]
fn draining_waits_for_what_was_handed_over() {
    let workers = Workers::new(1);
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let done = Arc::clone(&done);
        workers.run_once(Lane::Metadata, move || {
            thread::yield_now();
            done.fetch_add(1, Ordering::AcqRel);
        });
    }
    workers.drain();
    assert_eq!(done.load(Ordering::Acquire), 8);
    workers.drain();
}

#[test]
fn threads_of_a_mount_that_has_ended_do_not_stay() {
    let workers = Workers::new(1);
    let about = About {
        lane: Lane::Data,
        pid: 0,
        is_slow: false,
    };
    let (done, finished) = mpsc::channel();
    let answered = done.clone();
    workers.run(about, || (), move |_| answered.send(()).unwrap());
    workers.run_aside(Lane::Metadata, move || done.send(()).unwrap());
    finished.iter().for_each(drop);
    let shared = &workers.shared;
    let queues = [&shared.metadata, &shared.data].map(Arc::downgrade);
    let watch = Arc::downgrade(&shared.watch);
    assert!(queues.iter().all(|queue| queue.strong_count() == 2));
    drop(workers);
    let begun = Instant::now();
    while watch.strong_count()
        + queues
            .each_ref()
            .map(Weak::strong_count)
            .iter()
            .sum::<usize>()
        > 0
    {
        assert!(begun.elapsed() < IDLE / 2, "threads are left");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_panic_ends_one_job() {
    let workers = Workers::new(1);
    let (done, finished) = mpsc::channel();
    for n in 0..3 {
        let done = done.clone();
        workers.run_once(Lane::Metadata, move || {
            assert_ne!(n, 1, "a panic on purpose");
            done.send(n).unwrap();
        });
    }
    drop(done);
    let mut seen: Vec<_> = finished.iter().collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 2]);
}

/// More than the maximum number of workers.
const SLOW_ONES: usize = 128;
const SLOW: About = About {
    lane: Lane::Metadata,
    pid: 0,
    is_slow: true,
};

#[test]
fn data_leaves_a_place_for_metadata() {
    let workers = Workers::new(4);
    let places: Vec<_> = (0..2)
        .map(|_| workers.shared.enter(Lane::Data).unwrap())
        .collect();
    assert!(workers.shared.enter(Lane::Data).is_none());
    let last = workers.shared.enter(Lane::Metadata).unwrap();
    assert!(workers.shared.enter(Lane::Metadata).is_none(), "one takes");
    assert!(workers.is_stuck(Duration::ZERO));
    drop((places, last));
    assert!(!workers.is_stuck(Duration::ZERO));
    assert_eq!(workers.shared.inline.load(Ordering::Acquire), 0);
    assert_eq!(workers.shared.inline_data.load(Ordering::Acquire), 0);
}

#[test]
fn metadata_that_waits_does_not_block_metadata_that_need_not() {
    let workers = Workers::new(4);
    let (answer, answers) = mpsc::channel();
    let stop = Arc::new(wait::Stop::default());
    for _ in 0..SLOW_ONES {
        let (stop, answer) = (Arc::clone(&stop), answer.clone());
        let work = move || {
            while !stop.is_set() && wait::allowed().is_ok() {
                thread::yield_now();
            }
        };
        workers.run(SLOW, work, move |_| answer.send("slow").unwrap());
    }
    let quick = answer.clone();
    workers.run(SLOW, || (), move |_| quick.send("quick").unwrap());
    assert_eq!(answers.recv().unwrap(), "quick");
    let waiting = workers.waiting();
    assert_eq!((waiting.now, waiting.metadata), (SLOW_ONES, 128));
    stop.set();
    drop(answer);
    assert_eq!(answers.iter().count(), SLOW_ONES);
    workers.drain();
    assert_eq!(workers.waiting().now, 0);
}
