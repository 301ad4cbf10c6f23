//! The sandbox of a command that reads a remote image.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use forerun::unstable::remote::RemoteOptions;
use forerun_sandbox::{Capabilities, Sandbox, Sockets};

use super::{NAMES, directory_of};
use crate::args::{Mirrors, RemoteArgs};

/// Adds the access that reading a remote image needs: the server, the cache, and files of mirrors.
pub fn for_image_there(image: &Path, args: &RemoteArgs, sandbox: Sandbox) -> Sandbox {
    let sandbox = for_cache(args, sandbox);
    let mut sandbox = for_server(image, &args.options(), sandbox);
    let mirrors = &args.server.mirrors;
    for file in mirrors.iter().filter_map(Mirrors::file) {
        sandbox = sandbox.read(file);
    }
    sandbox
}

/// Adds the access that requests to a server need: sockets, unless `--offline` was given, and
/// credentials.
pub fn for_server(name: &Path, options: &RemoteOptions, mut sandbox: Sandbox) -> Sandbox {
    if !options.offline {
        sandbox = sandbox.sockets(Sockets::New);
    }
    for path in options.reads() {
        // With sudo, the credentials are in files of the user who called it.
        sandbox = sandbox.read(path).keep(Capabilities::DAC_READ_SEARCH);
    }
    let is_in_registry = name.to_str().is_some_and(|name| name.starts_with("oci:"));
    if is_in_registry && options.registry.runs_programs() {
        sandbox.programs()
    } else {
        sandbox
    }
}

/// Adds the directories of the cache and of the recorded access list.
fn for_cache(args: &RemoteArgs, mut sandbox: Sandbox) -> Sandbox {
    let options = args.options();
    if let Some(dir) = options.cache_dir() {
        // A rule needs an existing directory. If it cannot be made, opening the cache reports that.
        let _made = make_private_dir(&dir);
        sandbox = sandbox.write_below(dir);
    }
    if let Some(file) = &options.record {
        sandbox = sandbox.write_below(directory_of(file)).keep(NAMES);
    }
    sandbox
}

/// Creates a missing directory with access for its owner only.
pub fn make_private_dir(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
