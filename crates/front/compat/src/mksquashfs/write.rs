//! Writes the image to its file.

use std::sync::Arc;

use forerun::build::{BuildError, Tree, drop_unreadable};
use forerun::{Observer, Writer};

use super::call::MakeCall;
use super::sources::ignore;
use super::{MakeEnded, MakeStop, is_of_source};
use crate::context::Context;
use crate::error::Failure;
use crate::progress::{Progress, Watched};
use crate::target::Target;

/// Number of times that writing restarts because files have disappeared.
const RESTARTS: u32 = 3;

/// Writes the image. Returns its length.
pub fn write(
    context: &Context,
    call: &MakeCall,
    writer: &Writer,
    tree: &mut Tree,
    target: &mut Target,
) -> MakeEnded<u64> {
    let observer = Arc::new(Observer::default());
    let mut restarts = 0;
    loop {
        let progress = Progress::new(context, "packing", tree.content_bytes());
        let mut watched = Watched {
            inner: target.image(),
            progress: &progress,
        };
        let error = match writer.write(tree, &mut watched, &observer) {
            Ok(written) => return Ok(written.len),
            Err(error) => error,
        };
        drop(progress);
        let failure = Failure::from(error);
        restarts += 1;
        let may_ignore = !call.exit_on_error && is_of_source(failure.exit) && restarts <= RESTARTS;
        let mut told = |error: BuildError| ignore(&Failure::from(error));
        if !may_ignore || drop_unreadable(tree, &mut told) == 0 || !target.begin_anew() {
            return Err(MakeStop::from(failure));
        }
    }
}
