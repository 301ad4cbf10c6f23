//! Real servers for the tests of what fetches: each on a free port of the loopback interface, in a
//! directory of its own, waited for until it answers, and ended when dropped.
//!
//! [`Nginx`] serves files, [`DockerRegistry`] blobs and manifests, [`S3Server`] objects; a [`Tunnel`]
//! has a server appear under another name, and an [`EndlessServer`] does not say how long its file is.
//! They give `None` where the machine lacks the program, which in CI is a failure. A [`fault_proxy`] is a link of chosen
//! latency and bandwidth to any of them, which fails as it is told.
//!
//! A crate of its own, because only the tests of remote images and of the command need servers: the tests of a
//! driver do not build it. It is for tests only: a helper that cannot continue panics, which fails the test
//! that called it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod containerd;
mod endless;
pub mod fault_proxy;
mod get;
mod nginx;
mod port;
mod process;
mod registry;
mod s3;
mod tls;
mod token;
mod tunnel;

pub use containerd::containerd_config;
pub use endless::{Ending, EndlessServer};
pub use get::get;
pub use nginx::{Nginx, NginxOptions};
pub use port::free_port;
pub(crate) use port::listen;
pub use registry::{Auth, DockerRegistry};
pub use s3::S3Server;
pub use tunnel::Tunnel;

/// The user that servers know where they ask for one.
pub const USER: &str = "tester";
/// The password of that user.
pub const PASSWORD: &str = "open-sesame";
