//! The library for C.
//!
//! Each function takes what C has (pointers, lengths, numbers), turns it into what Rust has, calls the library, and
//! turns the answer back. Two things hold everywhere: no panic reaches the caller ([`boundary::answer`]), and every
//! pointer is followed in [`boundary`] only, under this contract, which the header states too:
//!
//! - A pointer to an object is one that a function here has returned, and that was not freed since. Null is
//!   refused, anything else cannot be.
//! - A string ends with a NUL; a buffer has the length that is given with it.
//! - A pointer to a place for an answer is null, or may be written.
//! - The function that frees an object is the last one to see it, and runs when no other one does.
#![allow(non_camel_case_types)]

pub mod boundary;
pub mod counters;
pub mod entries;
pub mod error;
pub mod extents;
pub mod failure;
pub mod files;
pub mod image;
pub mod metadata;
pub mod options;
pub mod packing;
