//! Transfers whole images to and from servers, by reference, for `forerun push` and `forerun pull`.

use std::path::Path;

use forerun_io::ReadAt;

use crate::client::{self, ClientOptions};
use crate::pull::{self, PullOptions, Pulled};
use crate::push::{self, PushOptions, Pushed};
use crate::registry::Registry;
use crate::spool::Room;
use crate::{Progress, Reference, RemoteError, RemoteOptions, Result, unmeasured};

/// Stores `image` under the name of a registry, as [`push`](push::push) does.
///
/// # Errors
/// [`RemoteError::Reference`] for a text that is no name in a registry; else as [`push`](push::push).
pub fn push_to(
    image: &dyn ReadAt,
    reference: &Reference,
    options: &RemoteOptions,
    how: &PushOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pushed> {
    let Reference::Oci(name) = reference else {
        return Err(RemoteError::Reference {
            text: reference.place(),
            reason: "images are pushed to registries only: oci://HOST/NAME:TAG".to_owned(),
        });
    };
    let client = client::build(&ClientOptions {
        ca_file: options.ca_file.clone(),
        connect_timeout: options.connect_timeout,
        follow_redirects: false,
    })?;
    let registry = Registry::new(client, options.registry.clone());
    push::push(&registry, image, name, how, progress)
}

/// Fetches the whole image into a file, as [`pull`](pull::pull) does.
///
/// # Errors
/// As [`open`](fn@crate::open) and [`pull`](pull::pull).
pub fn pull_to(
    reference: &Reference,
    output: &Path,
    options: &RemoteOptions,
    overwrite: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pulled> {
    let room = || Room::beside(output);
    let layout = unmeasured::resolved(reference, options, None, room)?.layout;
    let how = PullOptions {
        timeout: options.timeout,
        stall: options.stall,
        retries: options.retries,
        overwrite,
        ..PullOptions::default()
    };
    pull::pull(&layout, output, &how, progress)
}
