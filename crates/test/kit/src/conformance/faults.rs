//! Faults of the source below a driver: each read fails once, and is short once.

use std::sync::Arc;

use forerun_io::{MemorySource, ReadAt};
use forerun_vfs::{Error, Format, OpenWith, exercise};

use crate::FaultSource;

type Fault = FaultSource<MemorySource>;

/// Checks that a fault at any read of a valid image is reported and then forgotten, whether the
/// image is reopened or stays open.
pub fn check_faults(format: &Format, image: &[u8]) {
    let source = || MemorySource::new(image);
    let sound = Arc::new(Fault::fail_nth(source(), u64::MAX));
    assert_eq!(walk(format, &sound), Vec::<String>::new());
    let reads = sound.reads();
    let mut told = 0;
    for nth in 0..reads {
        for fault in [
            Fault::fail_nth(source(), nth),
            Fault::short_nth(source(), nth),
        ] {
            let fault = Arc::new(fault);
            let errors = exercise::walk(format, Arc::<Fault>::clone(&fault));
            let is_fault = |error: &Error| matches!(error, Error::Io { .. });
            assert!(errors.iter().all(is_fault), "read {nth}: {errors:?}");
            told += u64::from(!errors.is_empty());
            let errors = walk(format, &fault);
            assert!(errors.is_empty(), "read {nth} fails only once: {errors:?}");
        }
        stays_open(format, source(), nth);
    }
    // Not every fault is reported: a driver continues without a readahead, and some calls are made
    // only to detect panics.
    assert!(told > reads / 4, "{told} errors of {reads} reads");
}

fn walk(format: &Format, source: &Arc<Fault>) -> Vec<String> {
    let errors = exercise::walk(format, Arc::<Fault>::clone(source));
    errors.iter().map(ToString::to_string).collect()
}

fn stays_open(format: &Format, source: MemorySource, nth: u64) {
    let fault = Arc::new(Fault::fail_nth(source, nth));
    let shared: Arc<dyn ReadAt> = Arc::<Fault>::clone(&fault);
    let mut with = OpenWith::new(shared);
    with.limits = exercise::limits();
    let Ok(fs) = (format.open)(with) else {
        return;
    };
    let _first = exercise::all(&*fs, &exercise::limits());
    let errors = exercise::all(&*fs, &exercise::limits());
    assert!(
        fault.reads() <= nth || errors.is_empty(),
        "read {nth}: {errors:?}"
    );
}
