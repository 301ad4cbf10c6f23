//! Help texts that differ in a program without a network.

/// Expands to the first text, or to the second in a program without a network.
#[cfg(feature = "network")]
macro_rules! at_server {
    ($there:literal, $here:literal) => {
        $there
    };
}
#[cfg(not(feature = "network"))]
macro_rules! at_server {
    ($there:literal, $here:literal) => {
        $here
    };
}
pub(crate) use at_server;
