use std::sync::{LockResult, PoisonError};

/// Ignores the poisoning of a lock that a panicking thread held.
///
/// Each critical section of this project leaves its data valid between any two statements. So one
/// panic need not become a panic of every thread that uses the lock later.
pub trait Unpoisoned {
    /// The guard, or the data of a consumed lock.
    type Guard;

    fn unpoisoned(self) -> Self::Guard;
}

impl<G> Unpoisoned for LockResult<G> {
    type Guard = G;

    fn unpoisoned(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn data_outlives_the_panic_of_a_thread_that_held_its_lock() {
        let data = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut data = data.lock().unpoisoned();
                *data = 2;
                panic!("on purpose");
            });
            holder.join().is_err()
        });
        assert!(panicked && data.is_poisoned());
        assert_eq!(*data.lock().unpoisoned(), 2);
        assert_eq!(data.into_inner().unpoisoned(), 2);
    }
}
