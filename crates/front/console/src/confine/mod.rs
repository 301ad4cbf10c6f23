//! The sandbox of a command. It is entered after the command's files are open, and before the first
//! byte of an image is parsed and the first thread starts. docs/sandbox.md lists the access that
//! each command keeps.

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

#[derive(Debug, Default)]
pub struct Confinement {
    entered: OnceCell<Option<Report>>,
}

impl Confinement {
    /// Enters the sandbox, once per process and unless `--no-sandbox` was given.
    pub fn enter(&self, global: &Global, sandbox: &Sandbox) {
        self.entered.get_or_init(|| {
            let report = (!global.no_sandbox).then(|| sandbox.enter());
            crate::interrupt::resume();
            #[cfg(debug_assertions)]
            probe::run();
            report
        });
    }

    /// Describes the sandbox in one line. Returns `None` before the sandbox is entered.
    pub fn text(&self) -> Option<String> {
        let entered = self.entered.get()?;
        Some(match entered {
            Some(report) => report.to_string(),
            None => "off (--no-sandbox)".to_string(),
        })
    }

    /// Describes the sandbox as JSON: `null` for none, otherwise an object with a state for each
    /// measure.
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

/// Refuses to store or create owners and devices under fakeroot or pseudo if they cannot intercept
/// the calls: no library can be preloaded into a static program.
pub fn check_emulator() -> Result<()> {
    match emulator_of_root() {
        Some(name) if cfg!(target_feature = "crt-static") => {
            let message = format!(
                "this program is linked statically, so {name} cannot be preloaded: owners and devices would be wrong"
            );
            let failure = Failure::usage(message);
            Err(failure.hint("use a dynamically linked forerun, or unset LD_PRELOAD"))
        }
        _ => Ok(()),
    }
}

pub fn for_images(args: &ImageArgs) -> Sandbox {
    let images = args.images().iter();
    images.fold(Sandbox::new(), |sandbox, image| {
        sandbox.and(for_image(image, &args.source))
    })
}

/// Returns the sandbox for reading an image whose file is open. It allows devices and objects
/// outside the image, or the image's server.
pub fn for_image(image: &Path, source: &SourceArgs) -> Sandbox {
    let mut sandbox = Sandbox::new();
    for path in source.device.iter().chain(source.store.dirs()) {
        // Root opens these paths whatever their permissions are. Landlock limits the capability to
        // them.
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

/// Returns the existing or future directory of a file.
pub fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Capabilities to create, rename and remove files in directories of other users.
pub const NAMES: Capabilities = Capabilities::DAC_OVERRIDE.union(Capabilities::FOWNER);

/// Capabilities to set owners, permissions and attributes of other users' files. Only a process of
/// root has them.
pub const OWNERS: Capabilities = NAMES.union(Capabilities::CHOWN).union(Capabilities::FSETID);

/// Capabilities to read a whole directory tree: files of other users, and `trusted.` attributes.
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
