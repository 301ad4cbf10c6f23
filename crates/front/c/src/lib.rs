//! The library for C.
//!
//! Each function converts its C arguments (pointers, lengths, numbers) to Rust, calls the library,
//! and converts the result back. No panic reaches the caller ([`boundary::answer`]), and pointers
//! are dereferenced in [`boundary`] only, under this contract, which the header states too:
//!
//! - A pointer to an object was returned by a function here, and the object was not freed since.
//!   Null is rejected; other invalid pointers cannot be detected.
//! - A string ends with a NUL; a buffer has the length that is passed with it.
//! - A pointer for an answer is null or can be written.
//! - No other function runs on an object while it is freed, or later.
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
