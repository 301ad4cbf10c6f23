//! The sandbox of a command: entered once its files are open, before the first byte of an image is
//! parsed and the first thread starts. docs/sandbox.md lists what each command keeps.

#[cfg(debug_assertions)]
mod probe;

use std::cell::OnceCell;
use std::path::Path;

use forerun::remote::RemoteOptions;
use forerun_sandbox::{Capabilities, Report, Sandbox, Sockets};
use serde_json::{Map, Value};

use crate::args::{Global, ImageArgs, RemoteArgs, SourceArgs};

/// Whether and how this process is confined.
#[derive(Debug, Default)]
pub struct Confinement {
    entered: OnceCell<Option<Report>>,
}

impl Confinement {
    /// Enters the sandbox, once in the life of the process and unless `--no-sandbox` was given.
    pub fn enter(&self, global: &Global, sandbox: &Sandbox) {
        self.entered.get_or_init(|| {
            let report = (!global.no_sandbox).then(|| sandbox.enter());
            crate::interrupt::resume();
            #[cfg(debug_assertions)]
            probe::run();
            report
        });
    }

    /// Describes the sandbox in one line for people; nothing where no sandbox was to be entered yet.
    pub fn text(&self) -> Option<String> {
        let entered = self.entered.get()?;
        Some(match entered {
            Some(report) => report.to_string(),
            None => "off (--no-sandbox)".to_string(),
        })
    }

    /// Describes it as JSON: `null` for none, else an object with a state for each measure.
    pub fn json(&self) -> Value {
        let Some(Some(report)) = self.entered.get() else {
            return Value::Null;
        };
        let measures = report.measures().iter().map(|measure| {
            let mut state = Map::new();
            state.insert("state".into(), measure.state.name().into());
            state.insert("detail".into(), measure.state.text().into());
            (measure.name.replace(' ', "_"), state.into())
        });
        Value::Object(measures.collect())
    }
}

/// Returns the sandbox for reading an image, or the layers of one.
pub fn for_images(args: &ImageArgs) -> Sandbox {
    let images = args.images().iter();
    images.fold(Sandbox::new(), |sandbox, image| {
        sandbox.and(for_image(image, &args.source))
    })
}

/// Returns the sandbox for reading an image whose file is open. It allows the devices and objects outside
/// the image, or the server that the image is at.
pub fn for_image(image: &Path, source: &SourceArgs) -> Sandbox {
    let mut sandbox = Sandbox::new();
    for path in source.device.iter().chain(&source.store.objects) {
        // Root opens them whatever their permissions are. Landlock keeps that to these paths.
        sandbox = sandbox.read(path).keep(Capabilities::DAC_READ_SEARCH);
    }
    if crate::remote::is_remote(image) {
        sandbox = for_cache(&source.remote, sandbox);
        sandbox = for_server(image, &source.remote.options(), sandbox);
        let mirrors = &source.remote.server.mirrors;
        for file in mirrors.iter().filter_map(|text| text.strip_prefix('@')) {
            sandbox = sandbox.read(file);
        }
    }
    sandbox
}

/// Adds what requests to a server need: sockets, unless `--offline` was given, and credentials.
pub fn for_server(name: &Path, options: &RemoteOptions, mut sandbox: Sandbox) -> Sandbox {
    if !options.offline {
        sandbox = sandbox.sockets(Sockets::New);
    }
    for path in options.reads() {
        // Those of the user who has become root.
        sandbox = sandbox.read(path).keep(Capabilities::DAC_READ_SEARCH);
    }
    let is_in_registry = name.to_str().is_some_and(|name| name.starts_with("oci:"));
    match is_in_registry && options.registry.runs_programs() {
        true => sandbox.programs(),
        false => sandbox,
    }
}

/// Adds the directories of the cache and of the list of chunks that were used.
fn for_cache(args: &RemoteArgs, mut sandbox: Sandbox) -> Sandbox {
    let options = args.options();
    if let Some(dir) = options.cache_dir() {
        // A rule needs a directory. If it cannot be made, opening the cache reports that.
        let _made = crate::remote::make_cache_dir(&dir);
        sandbox = sandbox.write_below(dir);
    }
    if let Some(file) = &options.record {
        sandbox = sandbox.write_below(directory_of(file)).keep(NAMES);
    }
    sandbox
}

/// Returns the directory that a file is in, or is to be made in.
pub fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Capabilities to name files in directories of other users.
pub const NAMES: Capabilities = Capabilities::DAC_OVERRIDE.union(Capabilities::FOWNER);

/// Capabilities to set owners, permissions and attributes of other users' files. Only a process of root
/// has them.
pub const OWNERS: Capabilities = NAMES.union(Capabilities::CHOWN).union(Capabilities::FSETID);

/// Capabilities to read all of a directory tree: files of other users, and the attributes of `trusted.`.
pub const TREES: Capabilities = Capabilities::DAC_READ_SEARCH.union(Capabilities::SYS_ADMIN);
