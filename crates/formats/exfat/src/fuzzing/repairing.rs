//! Repairs arbitrary bytes.

use std::sync::Arc;

use forerun_io::{BlockDevice, MemoryDevice};
use forerun_vfs::Error;

use super::{limits, seal, walk};
use crate::repair::{Answer, Finding, RepairOptions, repair};

/// Repairs `bytes` as an image after correcting the checksums of the boot regions: first with the
/// bits of `answers` as answers to the findings, then with yes to all. Returns the findings of
/// `check` if the repair reports nothing unrepaired.
pub fn mend(bytes: &[u8], answers: u64) -> Vec<Error> {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let device = Arc::new(MemoryDevice::new(bytes));
    let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&device);
    let mut options = RepairOptions {
        limits: limits(),
        keep_lost: answers & 1 != 0,
        ..RepairOptions::default()
    };
    let mut answers = answers;
    let mut some = |_: &Finding| {
        answers = answers.rotate_right(1);
        match answers & 1 {
            0 => Answer::No,
            _ => Answer::Yes,
        }
    };
    let _summary = repair(&shared, &Arc::default(), &options, &mut some);
    options.keep_lost = false;
    let summary = repair(&shared, &Arc::default(), &options, &mut |_| Answer::Yes);
    let is_whole = summary.is_ok_and(|summary| summary.remains() == 0);
    if is_whole {
        walk(&device.to_vec())
    } else {
        Vec::new()
    }
}
