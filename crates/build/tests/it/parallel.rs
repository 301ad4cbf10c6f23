//! The ordered parallel map: order, bounds, and every way to end early.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forerun_build::{Jobs, ParallelBounds, ParallelError, parallel_map};

type Outcome<T> = Result<T, ParallelError<&'static str>>;

const fn bounds(threads: usize, memory: usize) -> ParallelBounds {
    ParallelBounds { threads, memory }
}

/// Computes the squares of `0..count`, each in a job of weight `weight`.
fn squares(bounds: ParallelBounds, count: u64, weight: usize) -> Outcome<(u64, Vec<u64>)> {
    let mut results = Vec::new();
    let sent = parallel_map(
        bounds,
        || Ok(|n: u64| Ok(n * n)),
        |jobs| {
            for n in 0..count {
                jobs.send(n, weight)?;
            }
            Ok(count)
        },
        |square| {
            results.push(square);
            Ok(())
        },
    )?;
    Ok((sent, results))
}

#[test]
fn results_come_in_the_order_of_the_jobs() {
    let expected: Vec<u64> = (0..5000).map(|n| n * n).collect();
    for threads in [0, 1, 2, 7] {
        for (memory, weight) in [(0, 10), (1, 0), (5000, 10), (1 << 30, 1 << 40)] {
            let (sent, results) = squares(bounds(threads, memory), 5000, weight).unwrap();
            assert_eq!(
                (sent, &results),
                (5000, &expected),
                "{threads} {memory} {weight}"
            );
        }
    }
    assert_eq!(squares(bounds(3, 100), 0, 1).unwrap(), (0, vec![]));
}

#[test]
fn no_more_is_under_way_than_may_be() {
    // With the overhead per job, 7 jobs of weight 1000 fit into 10000 bytes.
    let (made, taken, most) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    parallel_map(
        bounds(4, 10_000),
        || Ok::<_, &'static str>(|()| Ok(())),
        |jobs| {
            for _ in 0..1000 {
                jobs.send((), 1000)?;
                let made = made.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(made - taken.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            Ok(())
        },
        |()| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok(())
        },
    )
    .unwrap();
    // The consumer may take one more job between the two loads of the producer.
    assert!(most.into_inner() <= 8);
}

#[test]
fn each_thread_has_its_own_context() {
    let contexts = AtomicUsize::new(0);
    let mut used = 0;
    parallel_map(
        bounds(3, 1 << 20),
        || {
            contexts.fetch_add(1, Ordering::SeqCst);
            let mut calls = 0;
            Ok::<_, &'static str>(move |()| {
                calls += 1;
                Ok(calls)
            })
        },
        |jobs| (0..100).try_for_each(|_| jobs.send((), 1)),
        |calls: usize| {
            used += usize::from(calls == 1);
            Ok(())
        },
    )
    .unwrap();
    assert!((1..=3).contains(&used) && contexts.into_inner() <= 3);
}

fn endless(jobs: Jobs<'_, u64>) -> Outcome<()> {
    for n in 0.. {
        jobs.send(n, 100)?;
    }
    Ok(())
}

#[test]
fn a_failure_anywhere_ends_everything_and_is_told() {
    let failed = |outcome: Outcome<()>| match outcome {
        Err(ParallelError::Failed(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let fine = || Ok(|n: u64| Ok(n));
    for memory in [0, 1000, 1 << 20] {
        let bounds = bounds(3, memory);
        let failing_worker = || Ok(|n: u64| if n < 100 { Ok(n) } else { Err("worker") });
        let outcome = parallel_map(bounds, failing_worker, endless, |_| Ok(()));
        assert_eq!(failed(outcome), "worker");
        let no_worker = || Err::<fn(u64) -> Result<u64, _>, _>("context");
        assert_eq!(
            failed(parallel_map(bounds, no_worker, endless, |_| Ok(()))),
            "context"
        );
        let outcome = parallel_map(bounds, fine, endless, |n| match n {
            100 => Err("consumer".into()),
            _ => Ok(()),
        });
        assert_eq!(failed(outcome), "consumer");
        let producer = |jobs: Jobs<'_, u64>| {
            jobs.send(1, 1)?;
            Err("producer".into())
        };
        assert_eq!(
            failed(parallel_map(bounds, fine, producer, |_| Ok(()))),
            "producer"
        );
    }
}

#[test]
fn a_panic_anywhere_ends_everything() {
    let fine = || Ok::<_, &'static str>(|n: u64| Ok(n));
    let bad = || Ok::<_, &'static str>(|n: u64| if n < 10 { Ok(n) } else { panic!("worker") });
    let outcome = parallel_map(bounds(2, 1000), bad, endless, |_| Ok(()));
    assert!(
        matches!(outcome, Err(ParallelError::Panicked)),
        "{outcome:?}"
    );
    let producer = |jobs: Jobs<'_, u64>| -> Outcome<()> {
        jobs.send(1, 1)?;
        panic!("producer")
    };
    let outcome = parallel_map(bounds(2, 1000), fine, producer, |_| Ok(()));
    assert!(
        matches!(outcome, Err(ParallelError::Panicked)),
        "{outcome:?}"
    );
    // The consumer's panic reaches the caller after the threads have ended.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        parallel_map(bounds(2, 1000), fine, endless, |n| match n {
            10 => panic!("consumer"),
            _ => Ok(()),
        })
    }));
    assert!(caught.is_err());
}

/// Checks that one map can feed another, and that either may end both.
#[test]
fn maps_in_a_row() {
    let run = |inner_fails: bool, outer_fails: bool| {
        let results = Mutex::new(Vec::new());
        let outcome = parallel_map(
            bounds(2, 2000),
            || Ok(|n: u64| Ok(n + 1)),
            |outer| {
                parallel_map(
                    bounds(2, 2000),
                    || {
                        Ok(move |n: u64| {
                            if inner_fails && n == 500 {
                                Err("inner")
                            } else {
                                Ok(n * 2)
                            }
                        })
                    },
                    |inner| (0..1000).try_for_each(|n| inner.send(n, 100)),
                    |n| outer.send(n, 100),
                )
            },
            |n| {
                if outer_fails && n == 501 {
                    return Err("outer".into());
                }
                results.lock().unwrap().push(n);
                Ok(())
            },
        );
        (outcome, results.into_inner().unwrap())
    };
    let (outcome, results) = run(false, false);
    outcome.unwrap();
    assert_eq!(results, (0..1000).map(|n| n * 2 + 1).collect::<Vec<_>>());
    assert!(matches!(
        run(true, false).0,
        Err(ParallelError::Failed("inner"))
    ));
    assert!(matches!(
        run(false, true).0,
        Err(ParallelError::Failed("outer"))
    ));
}
