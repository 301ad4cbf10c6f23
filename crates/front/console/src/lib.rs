//! Code that the commands of forerun share: arguments (`args`), opening images (`context`,
//! `source`), failures and exit codes (`error`, `exit`), results (`output`, `json`), new files
//! (`target`), the sandbox (`confine`).
//!
//! Nothing here knows a command.

pub mod advice;
pub mod archive;
pub mod args;
pub mod columns;
pub mod confine;
pub mod context;
pub mod error;
pub mod escape;
pub mod exit;
#[cfg(feature = "network")]
pub mod fetch;
pub mod interrupt;
pub mod json;
pub mod layer_count;
pub mod layers;
pub mod log;
pub mod losses;
pub mod names;
pub mod output;
pub mod partition;
pub mod patience;
pub mod place;
pub mod progress;
pub mod remote;
pub mod role;
pub mod secrets;
mod shifted;
pub mod size;
pub mod source;
pub mod spool;
pub mod stdin;
pub mod target;
pub mod values;
