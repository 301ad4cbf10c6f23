//! A reader over a filesystem in memory, as the tests of the engine use it.

pub use forerun_testkit::generate::pattern;
pub use forerun_testkit::opened::{Opened, open, open_on};

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;
