//! Real servers for tests of fetching. Each runs on a free port of the loopback interface, in its
//! own directory, and ends when dropped. Starting one waits until it answers.
//!
//! [`Nginx`] serves files, [`DockerRegistry`] blobs and manifests, [`S3Server`] objects; a
//! [`Tunnel`] makes a server appear under another name, and an [`EndlessServer`] does not give the
//! length of its file. They return `None` if the program is missing, which fails in CI. A
//! [`fault_proxy`] is a link of chosen latency and bandwidth to any of them, with faults on demand.
//!
//! This is a separate crate, because only the tests of remote images and of the command need
//! servers: the tests of a driver do not build it. It is for tests only: a helper that cannot
//! continue panics, which fails the test that called it.
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
pub(crate) use port::{listen, loopback};
pub use registry::{Auth, DockerRegistry};
pub use s3::S3Server;
pub use tunnel::Tunnel;

/// The user of servers with authentication.
pub const USER: &str = "tester";
pub const PASSWORD: &str = "open-sesame";
