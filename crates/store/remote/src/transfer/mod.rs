//! Transfers whole images to and from servers, by reference, for `forerun push` and `forerun pull`.

pub mod pull;
pub mod push;

use std::path::Path;

use forerun_io::ReadAt;

use crate::http::client::{self, ClientOptions};
use crate::registry::Registry;
use crate::resolve::spool::Room;
use crate::resolve::{self, ResolvedName, unknown_length};
use crate::{Progress, Reference, RemoteError, RemoteOptions, Result};

use pull::{PullOptions, Pulled};
use push::{PushOptions, Pushed};

/// Stores `image` under a name in a registry, as [`push`](push::push) does. Fails with
/// [`RemoteError::Reference`] if the text is not a name in a registry.
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

/// Fetches the whole image into a file, as [`pull`](pull::pull) does. A container image is fetched
/// into the directory `output` as an OCI image layout; blobs that the layout already has are not
/// fetched, and its other images stay. Refuses a directory with other files.
pub fn pull_to(
    reference: &Reference,
    output: &Path,
    options: &RemoteOptions,
    overwrite: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pulled> {
    let how = PullOptions {
        timeout: options.timeout,
        stall: options.stall,
        retries: options.retries,
        overwrite,
        ..PullOptions::default()
    };
    let layout = match reference {
        Reference::Oci(name) => match resolve::named(reference, options)? {
            ResolvedName::Image(resolved) => resolved.layout,
            ResolvedName::Container(image, registry) => {
                let config = resolve::config(reference, name, (&image, &registry), options)?;
                return pull::pull_container((&image, &config), name, output, &how, progress);
            }
        },
        Reference::Http(_) | Reference::S3 { .. } => {
            let room = || Room::beside(output);
            unknown_length::resolved(reference, options, None, room)?.layout
        }
    };
    pull::pull(&layout, output, &how, progress)
}
