//! System calls of Linux that neither the standard library nor rustix wraps safely.
//!
//! All other crates forbid `unsafe`. Each module here wraps one interface of the kernel, states why its blocks are sound, and has
//! a test. Nothing here knows about images, mounts or forerun.

mod mount_attributes;
mod terminal_input;

pub use mount_attributes::set_mount_attributes;
pub use terminal_input::refuse_terminal_input;
