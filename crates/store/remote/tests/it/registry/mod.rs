//! Registries: Debian's docker-registry, and servers of our own that do what it never would.

mod auth;
mod containers;
mod fake;
mod fuzz_entries;
mod hostile;
mod layouts;
mod mirrors;
mod push_pull;
mod referrer_pages;
mod referrers;
mod store;
mod support;
