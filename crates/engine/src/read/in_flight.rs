//! A bound on the memory of blocks that are being decoded.
//!
//! Blocks that many readers decode at the same time are not in a cache yet. With blocks of 1 MiB
//! they take more memory than a small cache does.

use std::sync::{Condvar, Mutex, MutexGuard};

use forerun_io::Unpoisoned;

pub struct InFlight {
    most: u64,
    sum: Mutex<Sum>,
    left: Condvar,
}

struct Sum {
    bytes: u64,
    /// Number of waiting threads. The condition is not notified, which is a system call, when it is
    /// 0.
    waiting: u64,
}

/// The bytes of one block, counted until this is dropped.
pub struct Counted<'f> {
    of: &'f InFlight,
    bytes: u64,
}

impl InFlight {
    /// Creates a bound of `most` bytes in total, or of one block if that is larger.
    pub const fn new(most: u64) -> Self {
        Self {
            most,
            sum: Mutex::new(Sum {
                bytes: 0,
                waiting: 0,
            }),
            left: Condvar::new(),
        }
    }

    /// Waits until there is room for a block, and counts it. The caller must not wait for another
    /// caller's block before it drops the result, or both may wait forever.
    pub fn enter(&self, bytes: u64) -> Counted<'_> {
        let mut sum = self.lock();
        while sum.bytes > 0 && sum.bytes + bytes > self.most {
            sum.waiting += 1;
            sum = self.left.wait(sum).unpoisoned();
            sum.waiting -= 1;
        }
        sum.bytes += bytes;
        Counted { of: self, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Sum> {
        self.sum.lock().unpoisoned()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut sum = self.of.lock();
        sum.bytes -= self.bytes;
        let is_awaited = sum.waiting > 0;
        drop(sum);
        if is_awaited {
            self.of.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn blocks_wait_until_there_is_room() {
        let in_flight = InFlight::new(100);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _counted = in_flight.enter(40);
                        let sum = now.fetch_add(40, Ordering::SeqCst) + 40;
                        most.fetch_max(sum, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(40, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 80);
        let left = in_flight.lock();
        assert_eq!((left.bytes, left.waiting), (0, 0));
    }

    #[test]
    fn one_block_that_is_too_large_is_let_in() {
        let in_flight = InFlight::new(100);
        drop(in_flight.enter(1000));
        drop(in_flight.enter(u64::MAX));
        drop(in_flight.enter(1));
    }
}
