//! Opens images that the command line names.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use forerun::unstable::disk::partitions::partition_table;
use forerun::unstable::locks::{self, Held};
use forerun::unstable::remote::RemoteError;
#[cfg(feature = "network")]
use forerun::unstable::remote::{Opened, Reference};
use forerun::unstable::{DiskImage, KeptIndex};
use forerun::vfs::KeepIndex;
use forerun::{Cause, Image, LayerSource, Observer, OpenOptions, ReadAt};
use forerun_io::{EventSink, FileSource};
use forerun_sandbox::{Capabilities, Sandbox};

use crate::args::{ImageArgs, is_stdin};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
#[cfg(feature = "network")]
use crate::fetch;
use crate::patience::patiently;
use crate::size::{count_of, counted};
#[cfg(feature = "network")]
use crate::target::refuse_filled_later;
use crate::{confine, layer_count, names, partition, remote, size, spool, stdin};

/// Returns the command that repairs a volume at this offset.
fn repair_command(options: &OpenOptions) -> String {
    let offset = (options.offset > 0).then(|| format!(" --offset {}", options.offset));
    let size = options.size.map(|size| format!(" --size {size}"));
    let (offset, size) = (offset.unwrap_or_default(), size.unwrap_or_default());
    format!("forerun check --repair{offset}{size} IMAGE")
}

impl Context {
    /// Opens the image that the command line names, for a command that needs nothing else: the
    /// process enters its sandbox before it parses the image.
    pub fn open(&self, args: &ImageArgs) -> Result<Image> {
        let prepared = self.prepare(args)?;
        self.confine(&prepared.sandbox());
        self.open_prepared(prepared, None)
    }

    /// Opens an image without entering the sandbox, for mounts by the kernel.
    pub fn open_unconfined(&self, args: &ImageArgs) -> Result<Image> {
        self.open_prepared(self.prepare(args)?, None)
    }

    /// Opens the file of an image without parsing it.
    pub fn prepare(&self, args: &ImageArgs) -> Result<PreparedImage> {
        prepare(self, args)
    }

    /// Opens an image whose file is open. Reports each block that crosses a boundary to `events`.
    pub fn open_prepared(
        &self,
        prepared: PreparedImage,
        events: Option<Arc<dyn EventSink>>,
    ) -> Result<Image> {
        let name = prepared.name();
        let image = prepared.open(self, events)?;
        self.observe(image.reader().observer());
        self.warn_of(&name, image.reader().fs().volume());
        Ok(image)
    }
}

/// An image whose file is open. Only the bytes that identify its format were read, if the lock of a
/// writable volume needs them. A server is not contacted yet, because that starts threads.
pub struct PreparedImage {
    args: ImageArgs,
    options: OpenOptions,
    file: Option<Held<FileSource>>,
    /// The sandbox rules for storing the index of a compressed archive, and for reading a container
    /// image on disk.
    index: Option<Sandbox>,
    /// The layers of a stack, lowest first.
    layers: Vec<PreparedImage>,
    /// A container image on disk. Its files are opened in the sandbox, because documents name them.
    on_disk: Option<DiskImage>,
}

/// Opens the file of an image or the files of its layers. Errors name the file.
pub fn prepare(context: &Context, args: &ImageArgs) -> Result<PreparedImage> {
    #[cfg(feature = "network")]
    if let Some(record) = &args.source.remote.record {
        refuse_filled_later(record)?;
    }
    if args.layers.is_empty() {
        return prepare_one(context, args);
    }
    if args.layers.iter().filter(|layer| is_stdin(layer)).count() > 1 {
        return Err(Failure::usage("standard input can be one layer only"));
    }
    let layers = args.layers.iter();
    let layers = layers.map(|layer| prepare_one(context, &args.of_layer(layer)));
    let mut options = args.open_options();
    options.spool = spool::prepare(None, &options);
    Ok(PreparedImage {
        args: args.clone(),
        options,
        file: None,
        index: None,
        layers: layers.collect::<Result<_>>()?,
        on_disk: None,
    })
}

fn prepare_one(context: &Context, args: &ImageArgs) -> Result<PreparedImage> {
    if let Some(image) = DiskImage::parse(&args.image) {
        return Ok(prepare_on_disk(args, image));
    }
    let name = image_name(args);
    let named = |failure: Failure| failure.of(&name);
    let source = if is_stdin(&args.image) {
        Some(stdin::open(context)?)
    } else if remote::is_remote(&args.image) {
        layer_count::allow_open_files();
        None
    } else {
        Some(open_file(context, &args.image).map_err(named)?)
    };
    let args = &match &source {
        Some(source) => partition::place(args, source).map_err(named)?,
        None => args.clone(),
    };
    let mut options = args.open_options();
    let metadata = source.as_ref().filter(|_| !is_stdin(&args.image));
    let metadata = metadata.and_then(|source| source.file().metadata().ok());
    let locked = |source: FileSource| {
        source.open_all();
        locks::source(source, &options)
    };
    let file = source.map(|source| -> Result<forerun::vfs::Result<Held<FileSource>>> {
        check_range(&source, &options).map_err(named)?;
        if is_stdin(&args.image) {
            return Ok(locked(source));
        }
        let mut opened = Some(source);
        Ok(patiently(&args.image, || match opened.take() {
            Some(source) => locked(source),
            None => {
                let source = FileSource::open(&args.image);
                locked(source.map_err(|error| forerun::vfs::Error::io(0, 0, error))?)
            }
        }))
    });
    let file = file.transpose()?.transpose();
    let file = file.map_err(|error| from_open(error, &options).of(&name))?;
    let source = file.as_ref().map(|file| -> &dyn ReadAt { file });
    options.spool = spool::prepare(source, &options);
    let mut index = None;
    if let (Some(source), Some(metadata)) = (source, &metadata) {
        let remote = &options.remote;
        let cache = remote.cache_dir().filter(|_| !remote.require_verified);
        let kept = spool::open_index(cache, &args.image, (source, metadata), &options);
        index = kept.as_ref().map(spool::sandbox);
        options.index = kept.map(|kept| -> Arc<dyn KeepIndex> { Arc::new(kept) });
    }
    Ok(PreparedImage {
        args: args.clone(),
        options,
        file,
        index,
        layers: Vec::new(),
        on_disk: None,
    })
}

/// Prepares a container image on disk, without opening it.
fn prepare_on_disk(args: &ImageArgs, image: DiskImage) -> PreparedImage {
    layer_count::allow_open_files();
    let mut options = args.open_options();
    options.spool = spool::prepare(None, &options);
    // Root opens the files whatever their permissions are. Landlock limits the capability to them.
    let mut sandbox = Sandbox::new()
        .read(image.path())
        .keep(Capabilities::DAC_READ_SEARCH);
    let indexes = options
        .remote
        .cache_dir()
        .map(|cache| KeptIndex::make_dir(&cache));
    // Without a directory for indexes, they are made again each time.
    if let Some(Ok(dir)) = indexes {
        sandbox = sandbox.write_below(dir);
    }
    PreparedImage {
        args: args.clone(),
        options,
        file: None,
        index: Some(sandbox),
        layers: Vec::new(),
        on_disk: Some(image),
    }
}

/// Returns the failure for a container image on disk that cannot be opened.
fn from_disk(error: &forerun::Error, options: &OpenOptions) -> Failure {
    match error.cause() {
        Cause::Image(error) => from_open(error.clone(), options),
        Cause::Open(error) if error.kind() == io::ErrorKind::InvalidData => {
            Failure::new(Exit::Image, "corrupt", error.to_string())
        }
        Cause::Open(error) => Failure::source(error),
        _ => Failure::new(Exit::Source, "io", error.to_string()),
    }
}

pub fn prepare_file(args: &ImageArgs, file: Option<File>) -> Result<PreparedImage> {
    let Some(file) = file else {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(cannot_open(&args.image, &denied).of(image_name(args)));
    };
    let options = args.open_options();
    let source = FileSource::from_file(file).map_err(|error| forerun::vfs::Error::io(0, 0, error));
    let locked = source.and_then(|source| locks::source(source, &options));
    let file = locked.map_err(|error| from_open(error, &options).of(image_name(args)))?;
    Ok(PreparedImage {
        args: args.clone(),
        options,
        file: Some(file),
        index: None,
        layers: Vec::new(),
        on_disk: None,
    })
}

impl PreparedImage {
    pub fn name(&self) -> String {
        image_name(&self.args)
    }

    /// Returns whether its file ends where the image would begin.
    pub fn is_empty(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.len() <= self.options.offset)
    }

    pub fn sandbox(&self) -> Sandbox {
        self.with_index(confine::for_images(&self.args))
    }

    /// Adds the access that storing the indexes of compressed archives needs.
    pub fn with_index(&self, sandbox: Sandbox) -> Sandbox {
        let indexes = self
            .layers
            .iter()
            .chain([self])
            .filter_map(|it| it.index.clone());
        indexes.fold(sandbox, Sandbox::and)
    }

    /// Opens the image. Errors name it.
    pub fn open(self, context: &Context, events: Option<Arc<dyn EventSink>>) -> Result<Image> {
        if !self.layers.is_empty() {
            return self.open_layers(context, events);
        }
        let name = self.name();
        let (source, mut options) = match self.sources(context)? {
            Sources::Image(source, options) => (source, options),
            Sources::Layers(layers, options) => {
                return merge(context, &name, layers, options, events);
            }
        };
        observe_remotes(context, events.as_ref());
        options.events = events;
        let opened = Image::from_source(Arc::clone(&source), &options);
        opened.map_err(|error| {
            let is_unknown = matches!(error, forerun::vfs::Error::UnknownFormat { .. });
            let failure = from_open(error, &options);
            let failure = if is_unknown {
                unknown(failure, &source, &options)
            } else {
                failure
            };
            failure.of(&name)
        })
    }

    fn open_layers(self, context: &Context, events: Option<Arc<dyn EventSink>>) -> Result<Image> {
        let (mut layers, stack) = (Vec::new(), self.name());
        for layer in self.layers {
            let name = layer.name();
            match layer.sources(context)? {
                Sources::Layers(of_container, _) => layers.extend(of_container),
                Sources::Image(source, options) => layers.push(LayerSource {
                    index: options.index,
                    ..LayerSource::new(name, source)
                }),
            }
        }
        merge(context, &stack, layers, self.options, events)
    }

    /// Returns the file or remote image, and the options with the offset of the image. A container
    /// image is refused, because it has several.
    pub fn into_source(self, context: &Context) -> Result<(Arc<dyn ReadAt>, OpenOptions)> {
        let name = self.name();
        match self.sources(context)? {
            Sources::Image(source, options) => Ok((source, options)),
            Sources::Layers(layers, _) => {
                let count = counted(count_of(layers.len()), "layer", "layers");
                let what = format!("is a container image of {count}");
                let hint = "name a layer by its digest: oci://HOST/REPOSITORY@sha256:...";
                Err(Failure::usage(what).hint(hint).of(name))
            }
        }
    }

    fn sources(self, context: &Context) -> Result<Sources> {
        let name = self.name();
        let named = |failure: Failure| failure.of(&name);
        let remote = &self.args.source.remote;
        if let Some(image) = &self.on_disk {
            let layers = image.layers(&self.options);
            let mut layers = layers.map_err(|error| named(from_disk(&error, &self.options)))?;
            layer_count::only_first(&mut layers, remote).map_err(named)?;
            return Ok(Sources::Layers(layers, self.options));
        }
        match (self.file, remote::reference(&self.args.image)?) {
            (Some(file), _) => {
                let hint =
                    "the layers of a container image in a SIF file are those of oci-sif:FILE";
                let refused = layer_count::refuse_first(remote);
                refused.map_err(|failure| named(failure.hint(hint)))?;
                check_range(&file, &self.options).map_err(named)?;
                Ok(Sources::Image(Arc::new(file), self.options))
            }
            #[cfg(feature = "network")]
            (None, Some(reference)) => {
                at_server(context, &reference, &self.args, self.options).map_err(named)
            }
            #[cfg(not(feature = "network"))]
            (None, Some(reference)) => match (reference, context) {},
            (None, None) => Err(Failure::usage("missing IMAGE")),
        }
    }
}

/// Opens a remote image, or the layers of one.
#[cfg(feature = "network")]
fn at_server(
    context: &Context,
    reference: &Reference,
    args: &ImageArgs,
    options: OpenOptions,
) -> Result<Sources> {
    let remote = &args.source.remote;
    let source = match fetch::open_all(context, reference, remote)? {
        Opened::Image(source) => source,
        Opened::Layers(layers) => {
            let layers = forerun::unstable::container_layers(layers, &remote.options());
            return Ok(Sources::Layers(layers, options));
        }
    };
    let args = partition::place(args, &*source)?;
    let spool = options.spool;
    let mut options = args.open_options();
    options.spool = spool;
    check_range(&*source, &options)?;
    Ok(Sources::Image(source, options))
}

/// The bytes of an image, and the options with its offset.
enum Sources {
    Image(Arc<dyn ReadAt>, OpenOptions),
    /// The layers of a container image, lowest first.
    Layers(Vec<LayerSource>, OpenOptions),
}

fn merge(
    context: &Context,
    name: &str,
    layers: Vec<LayerSource>,
    mut options: OpenOptions,
    events: Option<Arc<dyn EventSink>>,
) -> Result<Image> {
    observe_remotes(context, events.as_ref());
    options.events = events;
    #[cfg(feature = "network")]
    let merged = {
        let mut fetching = fetch::Fetching::new(context, &layers);
        Image::from_layers_with(layers, &options, &mut || fetching.report())
    };
    #[cfg(not(feature = "network"))]
    let merged = Image::from_layers(layers, &options);
    merged.map_err(|error| match RemoteError::within(&error) {
        Some(error) => remote::failure(error).of(name),
        None => from_open(error, &options),
    })
}

/// Reports requests for remote images to `events` too.
fn observe_remotes(context: &Context, events: Option<&Arc<dyn EventSink>>) {
    if let Some(events) = events {
        // Its clock starts with that of the image.
        let observer = Arc::new(Observer::new(Some(Arc::clone(events))));
        for remote in context.remotes() {
            remote.observe(Arc::clone(&observer));
        }
    }
}

fn open_file(context: &Context, path: &Path) -> Result<FileSource> {
    let file = File::open(path).map_err(|error| cannot_open(path, &error))?;
    let metadata = file.metadata().map_err(|error| Failure::source(&error))?;
    if metadata.is_dir() {
        let hint = "forerun pack makes an image of a directory";
        return Err(Failure::new(Exit::Source, "io", "is a directory, not an image").hint(hint));
    }
    if metadata.file_type().is_fifo() {
        // One that the shell made of a command, as in `forerun ls <(xz -dc IMAGE.xz)`.
        return stdin::copied(context, file, &path.display().to_string());
    }
    FileSource::from_file(file).map_err(|error| Failure::source(&error))
}

pub fn cannot_open(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::source(error);
    match error.kind() {
        io::ErrorKind::NotFound if path.is_symlink() => {
            failure.hint("it is a symbolic link that leads nowhere")
        }
        io::ErrorKind::NotFound => failure.maybe_hint(names::advice(path).as_deref()),
        io::ErrorKind::PermissionDenied => failure.hint("ask for read permission, or use sudo"),
        _ => failure,
    }
}

fn check_range(source: &dyn ReadAt, options: &OpenOptions) -> Result<()> {
    let end = match (options.offset, options.size) {
        (0, None) => return Ok(()),
        (offset, Some(size)) => offset.checked_add(size),
        (offset, None) => Some(offset),
    };
    let len = forerun::unstable::disk::disk_len(source);
    if end.is_some_and(|end| end <= len) {
        return Ok(());
    }
    let what = match options.size {
        Some(size) => format!("--offset {} and --size {size} reach", options.offset),
        None => format!("--offset {} lies", options.offset),
    };
    let len = size::exact(len);
    Err(Failure::usage(format!("{what} past the end at {len}")))
}

/// Adds advice to the failure of a file without a known format.
fn unknown(failure: Failure, source: &Arc<dyn ReadAt>, options: &OpenOptions) -> Failure {
    if forerun::unstable::repair::recognises(source, options) {
        return failure.hint(format!(
            "its boot sector was overwritten, but the backup is intact: {} repairs it",
            repair_command(options)
        ));
    }
    let is_whole = options.offset == 0 && options.size.is_none();
    if failure.hint.is_some() || !is_whole || source.len() < SMALLEST {
        return failure;
    }
    // A damaged table has no partition to open.
    let table = partition_table(&**source).ok().flatten();
    if let Some(table) = table.filter(|table| !table.partitions.is_empty()) {
        let partitions = partition::listed(&table);
        return failure.hint(format!(
            "--partition N opens one of its partitions: {partitions}; forerun scan IMAGE lists what is in them"
        ));
    }
    if options.format.is_some() {
        return failure.hint("leave --format out, and forerun detects the format");
    }
    failure.hint("forerun scan IMAGE lists what is inside it")
}

/// A shorter file contains no image.
const SMALLEST: u64 = 512;

/// Returns the failure for an image that cannot be opened, so that nothing can be listed or
/// checked.
pub fn from_open(error: forerun::vfs::Error, options: &OpenOptions) -> Failure {
    let failure = Failure::from(error.clone());
    let asked = options.format.as_deref();
    match &error {
        forerun::vfs::Error::UnknownFormat { expected, found } => {
            let known = forerun::format_names();
            if let Some(name) = asked.filter(|name| !known.contains(name)) {
                let message = format!("unknown format {name:?}");
                return Failure::usage(message).hint(format!("known: {}", known.join(", ")));
            }
            if let Some((found, advice)) = found.split_once("; ") {
                let error = forerun::vfs::Error::UnknownFormat {
                    expected: expected.clone(),
                    found: found.to_owned(),
                };
                let message = error.to_string();
                return Failure { message, ..failure }.hint(advice);
            }
            if options.offset > 0 {
                return failure.hint("check --offset, or leave it out");
            }
            failure
        }
        forerun::vfs::Error::Corrupt(_) if asked.is_some() => {
            failure.hint("leave --format out, and forerun detects the format")
        }
        forerun::vfs::Error::Corrupt(check) if forerun::unstable::repair::is_possible(check.format()) => {
            let repair = repair_command(options);
            failure.hint(format!(
                "{repair} --dry-run lists the repairs; forerun mount -o salvage shows the readable files"
            ))
        }
        forerun::vfs::Error::Corrupt(_) => failure.hint(if options.rescue {"it may be an incomplete copy: compare its size, or copy it again"} else {
                "the copy may be incomplete: copy the image again, or read the rest with --salvage (mount: -o salvage)"
            }),
        _ => failure,
    }
}
