//! The sandbox of a command: entered once its files are open, before the first byte of an image is
//! parsed and the first thread starts. docs/sandbox.md lists what each command keeps.

#[cfg(debug_assertions)]
mod probe;
#[cfg(feature = "network")]
mod server;

use std::cell::OnceCell;
use std::path::Path;

use forerun_export::ExtractOptions;
use forerun_sandbox::{Capabilities, Report, Sandbox, emulator_of_root};
use serde_json::{Map, Value};

use crate::args::{Global, ImageArgs, SourceArgs};
use crate::error::{Failure, Result};

#[cfg(feature = "network")]
pub use server::for_server;
#[cfg(feature = "snapshotter")]
pub use server::make_private_dir;

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

/// Refuses to take or to make owners and devices where fakeroot or pseudo cannot answer for them: nothing can be
/// preloaded into a program without an interpreter.
pub fn check_emulator() -> Result<()> {
    match emulator_of_root() {
        Some(name) if cfg!(target_feature = "crt-static") => {
            let message = format!(
                "{name} cannot be preloaded into this program, which is linked statically: owners and devices \
                 would be wrong"
            );
            let failure = Failure::usage(message);
            Err(failure.hint("take a program that is linked dynamically, or unset LD_PRELOAD"))
        }
        _ => Ok(()),
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
    #[cfg(feature = "network")]
    if crate::remote::is_remote(image) {
        sandbox = server::for_image_there(image, &source.remote, sandbox);
    }
    #[cfg(not(feature = "network"))]
    let _is_local = image;
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

/// Returns the capabilities that root needs to give files their owners, permissions and attributes.
pub fn capabilities(options: &ExtractOptions) -> Capabilities {
    let mut needed = OWNERS;
    if options.devices {
        needed |= Capabilities::MKNOD;
    }
    if options.privileged_xattrs {
        needed |= Capabilities::SETFCAP | Capabilities::SYS_ADMIN;
    }
    needed
}
