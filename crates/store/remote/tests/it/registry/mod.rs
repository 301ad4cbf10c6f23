//! Registries: Debian's docker-registry, and hostile servers made by the tests.

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
