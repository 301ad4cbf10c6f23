//! `forerun pack --appimage`: puts a program before the image that mounts it and runs its contents.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun::build::{NewNode, NodeKind, Tree};
use forerun::unstable::disk::payload::program_end;
use forerun::{ReadAt, Writer};
use forerun_io::FileSource;

use super::{PackArgs, appdir};
use crate::args::is_stdin;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The magic number of an AppImage of type 2, and its offset.
const MAGIC: (usize, &[u8; 3]) = (8, b"AI\x02");
/// The name of the icon that file managers look for.
const DIR_ICON: &[u8] = b".DirIcon";
/// Bytes that a decoder of the compressor contains.
const MARKS: [(&str, &[u8]); 3] = [
    ("zstd", &[0x28, 0xB5, 0x2F, 0xFD]),
    ("xz", b"\xFD7zXZ\0"),
    ("zlib", b"invalid distance too far back"),
];
/// Longest accepted runtime: a hundred times the usual length.
const MAX_RUNTIME: u64 = 128 << 20;

/// Options of AppImages.
#[derive(Args, Debug)]
pub struct AppImageArgs {
    /// Make an AppImage from the application directory INPUT
    ///
    /// INPUT needs an executable AppRun, one .desktop file, and the icon that it names. The image is SquashFS
    /// with zstd, unless --compressor is given, and everything in it belongs to root.
    #[arg(
        help_heading = "AppImage",
        long,
        conflicts_with_all = ["manifest", "empty", "blobdev", "objects"]
    )]
    pub appimage: bool,
    /// Runtime of the AppImage [default: ../lib/forerun/runtime-ARCH beside forerun]
    #[arg(help_heading = "AppImage", long, value_name = "FILE", requires = "appimage", value_hint = ValueHint::FilePath)]
    pub runtime: Option<PathBuf>,
}

/// What an AppImage has besides the contents of its directory.
pub struct AppImage {
    /// The bytes of the runtime.
    pub runtime: Vec<u8>,
    icon: String,
    /// The runtime is one of another project.
    is_foreign: bool,
}

impl AppImage {
    /// Links the icon under the name by which file managers find it, unless the directory has one there.
    pub fn add_icon(&self, tree: &mut Tree) -> Result<()> {
        if tree.child(Tree::ROOT, DIR_ICON).is_none() {
            let kind = NodeKind::Symlink(self.icon.as_bytes().to_vec());
            let mut link = NewNode::new(kind, 0o777);
            link.mtime = tree.node(Tree::ROOT).mtime;
            tree.add(Tree::ROOT, DIR_ICON, link)?;
        }
        Ok(())
    }

    /// Warns if the runtime does not seem to decode what the writer encodes.
    pub fn warn_of_codec(&self, context: &Context, writer: &Writer) {
        let Writer::Squashfs(options) = writer else {
            return;
        };
        let name = options.encoding.codec().name();
        let mut marks = MARKS.iter().filter(|(codec, _)| *codec == name);
        // Other compilers do not put the number into the program in one piece.
        let is_x86 = matches!(self.runtime.get(18), Some(3 | 62));
        let lacks = |mark: &[u8]| !self.runtime.windows(mark.len()).any(|bytes| bytes == mark);
        if self.is_foreign && is_x86 && marks.any(|(_, mark)| lacks(mark)) {
            let advice = "--compressor chooses another";
            context.note(&format!(
                "the runtime does not seem to know {name}; {advice}"
            ));
        }
    }
}

impl AppImageArgs {
    /// Checks the directory, and reads the runtime. Returns `None` if no AppImage is to be made.
    pub fn prepare(
        &self,
        args: &PackArgs,
        input: Option<&Path>,
        output: &Path,
    ) -> Result<Option<AppImage>> {
        if !self.appimage {
            return Ok(None);
        }
        args.format.check_appimage()?;
        if is_stdin(output) {
            let failure = Failure::usage("an AppImage is a file, not standard output");
            return Err(failure.hint("name the file: forerun pack --appimage APPDIR NAME.AppImage"));
        }
        let input = input.filter(|input| input.is_dir()).ok_or_else(|| {
            let failure = Failure::usage("an AppImage is made from a directory");
            failure.hint("forerun pack --appimage APPDIR NAME.AppImage")
        })?;
        let icon = appdir::check(input)?;
        let path = match &self.runtime {
            Some(path) => path.clone(),
            None => installed()?,
        };
        let runtime = read(&path).map_err(|failure| failure.of(path.display()))?;
        Ok(Some(AppImage {
            runtime,
            icon,
            is_foreign: self.runtime.is_some(),
        }))
    }
}

/// Returns the path of the runtime that was installed with this program.
fn installed() -> Result<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize());
    let program = program.map_err(|error| Failure::source(&error))?;
    let prefix = program.parent().and_then(Path::parent);
    let name = format!("lib/forerun/runtime-{}", std::env::consts::ARCH);
    let path = prefix.unwrap_or(Path::new("/")).join(name);
    if path.is_file() {
        Ok(path)
    } else {
        let message = "the runtime of AppImages is not installed";
        let failure = Failure::new(Exit::Source, "runtime", message).of(path.display());
        Err(failure.hint("make runtime builds it and make install installs it; or --runtime FILE"))
    }
}

/// Reads a runtime, and marks it as an AppImage.
fn read(path: &Path) -> Result<Vec<u8>> {
    let not = |message: String| Failure::new(Exit::Format, "runtime", message);
    let file = FileSource::open(path).map_err(|error| Failure::source(&error))?;
    let len = file.len();
    if len > MAX_RUNTIME {
        return Err(not(format!("{len} bytes are too many for a runtime")));
    }
    match program_end(&file)? {
        Some(end) if end == len => {}
        Some(end) => {
            let message = format!("the program ends at byte {end}, and the file at {len}");
            let hint = "give a runtime without an image behind it";
            return Err(not(message).hint(hint));
        }
        None => {
            return Err(not(
                "not a runtime of AppImages: not an ELF program".to_string()
            ));
        }
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_exact_at(0, &mut bytes);
    read.map_err(|error| Failure::source(&error))?;
    let (at, magic) = MAGIC;
    if let Some(place) = bytes.get_mut(at..at + magic.len()) {
        place.copy_from_slice(magic);
    }
    Ok(bytes)
}
