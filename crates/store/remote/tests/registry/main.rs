//! Registries: Debian's docker-registry, and servers of our own that do what it never would.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod auth;
mod fake;
mod fuzz_entries;
mod hostile;
mod mirrors;
mod push_pull;
mod store;
mod support;
