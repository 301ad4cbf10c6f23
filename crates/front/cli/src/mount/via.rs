//! The servers of a mount: a forerun process through FUSE, or the kernel's own driver.
//!
//! FUSE is the default: it needs no privilege, supports every option, and keeps untrusted bytes
//! away from the kernel. `auto` uses the kernel if the result is the same, and reports its choice
//! and the reason.

use std::io::ErrorKind;

use forerun::unstable::DiskImage;
use forerun_fuse::MountOptions;
use forerun_kernel::{Error, Mounted, Options, Upper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{MountArgs, failed, image_args};
use crate::context::Context;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;
use crate::{remote, size, umount};

const CONTAINER: &str = "this is a container image, and the kernel's drivers do not merge layers";
const MERGED: &str =
    "this SIF file has several layers, and the kernel's drivers do not merge layers";
const WITHOUT: &str = "--via fuse needs no kernel driver";

/// The server of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// The kernel's driver if possible, otherwise forerun; prints which one
    Auto,
    /// A process of forerun: every format, with or without root
    #[default]
    Fuse,
    /// The kernel's driver: local images only, needs root, no process stays
    Kernel,
}

impl Via {
    /// Returns the value of `via=` in mount options, or `None` for other words.
    pub fn from_option(word: &str) -> Option<Result<Self>> {
        let value = match word.split_once('=') {
            Some(("via", value)) => value,
            None if word == "via" => "",
            _ => return None,
        };
        Some(match value {
            "auto" => Ok(Self::Auto),
            "fuse" => Ok(Self::Fuse),
            "kernel" => Ok(Self::Kernel),
            "" => Err(Failure::usage(
                "mount option via needs a value: auto, fuse or kernel",
            )),
            other => Err(Failure::usage(format!(
                "mount option via={other}: not auto, fuse or kernel"
            ))),
        })
    }
}

/// Mounts the image with the kernel's driver. Returns `None` if FUSE must do it.
pub fn by_kernel(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    via: Via,
    upper: Option<&Upper>,
) -> Result<Option<Exit>> {
    if let (Some(_), Via::Auto | Via::Fuse) = (upper, via) {
        let message = "upperdir= and workdir= are options of a mount by the kernel";
        return Err(Failure::usage(message).hint("add --via kernel"));
    }
    if via == Via::Fuse {
        return Ok(None);
    }
    if remote::is_remote(&args.image) {
        if via == Via::Kernel {
            return Err(at_server(args));
        }
        context.note("mounting through FUSE: the image is at a server");
        return Ok(None);
    }
    let container = DiskImage::parse(&args.image).map(|_| CONTAINER.to_owned());
    let option = for_fuse_only(args, options);
    let option = option.map(|option| format!("{option} has no meaning for a mount by the kernel"));
    if let Some(message) = container.or(option) {
        return by_fuse(context, &message, via);
    }
    let image = context.open_unconfined(&image_args(args, options))?;
    if image.reader().fs().capabilities().merged.is_some() {
        return by_fuse(context, MERGED, via);
    }
    if args.helper.is_some_and(|call| call.fake) {
        return Ok(Some(Exit::Ok));
    }
    // An interrupt in between would leave a loop device behind, so it has to wait.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let mut signals = signals.map_err(|error| failed("handling signals", &error))?;
    let mut kernel = kernel_options(options);
    kernel.upper = upper.cloned();
    match forerun_kernel::mount(&image, &args.image, &args.dir, &kernel) {
        Ok(mounted) => {
            for refusal in &mounted.refusals {
                tracing::info!("the kernel refused: {refusal}");
            }
            if signals.pending().next().is_some() {
                return umount::take_back(mounted.entry.as_ref()).map(Some);
            }
            if options.rw_asked && upper.is_none() && args.helper.is_none() {
                context.note("the kernel mounts images read-only");
            }
            told(context, &mounted, via);
            Ok(Some(Exit::Ok))
        }
        Err(_) if via == Via::Auto && signals.pending().next().is_some() => {
            Ok(Some(Exit::Interrupted))
        }
        Err(error) if via == Via::Auto && !is_of_place(&error) => {
            // From here on, an interrupt ends the process at once again.
            drop(signals);
            drop(OnInterrupt::new(|| ()));
            let reason = without_errno(&error.to_string());
            context.note(&format!("mounting through FUSE: {reason}"));
            Ok(None)
        }
        Err(error) => Err(failure(&error, args)),
    }
}

/// Leaves a mount that the kernel cannot make to FUSE, unless it is to be the kernel's.
fn by_fuse(context: &Context, message: &str, via: Via) -> Result<Option<Exit>> {
    if via == Via::Kernel {
        return Err(Failure::usage(message).hint("leave it out, or use --via fuse"));
    }
    context.note(&format!("mounting through FUSE: {message}"));
    Ok(None)
}

fn told(context: &Context, mounted: &Mounted, via: Via) {
    let ahead = match mounted.prefetched {
        0 => String::new(),
        bytes => format!("; {} of metadata read ahead", size::human(bytes)),
    };
    let text = format!("mounted by the kernel: {mounted}{ahead}");
    match via {
        Via::Auto => context.note(&text),
        Via::Fuse | Via::Kernel => tracing::info!("{text}"),
    }
}

fn at_server(args: &MountArgs) -> Failure {
    let image = remote::shown(&args.image);
    let hint = format!(
        "forerun pull {image} FILE fetches the image, and mount FILE mounts it; --via fuse fetches what is read"
    );
    let message = "the image is at a server, and the kernel's drivers cannot fetch it";
    Failure::usage(message).of(image).hint(hint)
}

/// Returns the first given option that only a forerun process supports.
fn for_fuse_only(args: &MountArgs, options: &MountOptions) -> Option<&'static str> {
    let default = MountOptions::default();
    let named = [
        (!args.layers.is_empty(), "--layer"),
        (args.foreground, "--foreground"),
        (args.log.is_some(), "--log"),
        (args.trace.is_some(), "--trace"),
        (args.metrics.is_some(), "--metrics"),
        (options.rescue, "salvage"),
        (options.uid.is_some(), "uid="),
        (options.gid.is_some(), "gid="),
        (options.umask.is_some(), "umask="),
        (!options.squash_owners, "unmapped="),
        (options.auto_unmount, "auto_unmount"),
        (options.readahead.is_some(), "readahead="),
        (options.cache.is_some(), "cache="),
        (options.threads.is_some(), "threads="),
        (options.restarts != default.restarts, "restarts="),
        (!options.large_blocks, "nolargeblocks"),
        (options.fsname.is_some(), "fsname="),
        (options.subtype != default.subtype, "subtype="),
        (!options.labels.is_empty(), "context="),
    ];
    // Options without a kernel equivalent must have their defaults.
    let mut rest = options.clone();
    rest.offset = default.offset;
    rest.size = default.size;
    rest.devices.clone_from(&default.devices);
    rest.objects.clone_from(&default.objects);
    rest.base_dirs.clone_from(&default.base_dirs);
    rest.verity = default.verity;
    rest.digest.clone_from(&default.digest);
    rest.allow_other = default.allow_other;
    rest.default_permissions = default.default_permissions;
    rest.locking = default.locking;
    (rest.suid, rest.dev, rest.exec) = (default.suid, default.dev, default.exec);
    (rest.rw_asked, rest.ro_asked) = (default.rw_asked, default.ro_asked);
    named
        .into_iter()
        .chain([(rest != default, "one of the mount options")])
        .find_map(|(given, name)| given.then_some(name))
}

/// Converts the options for a mount by the kernel. Every such mount has `allow_other` and
/// `default_permissions`. Offset and size are in the image's arguments.
fn kernel_options(options: &MountOptions) -> Options {
    let mut kernel = Options::default();
    kernel.devices.clone_from(&options.devices);
    kernel.stores = options.stores().cloned().collect();
    kernel.read_only = options.ro_asked;
    kernel.verity = options.verity;
    kernel.suid = options.suid;
    kernel.dev = options.dev;
    kernel.exec = options.exec;
    kernel
}

/// Returns whether FUSE would fail in the same way, because the error concerns the mount point and
/// not the image.
const fn is_of_place(error: &Error) -> bool {
    matches!(
        error,
        Error::Mountpoint { .. } | Error::NotADirectory { .. } | Error::Attach { .. }
    )
}

fn failure(error: &Error, args: &MountArgs) -> Failure {
    let failure = Failure::new(Exit::Mount, "mount", without_errno(&error.to_string()));
    match error {
        Error::Mountpoint { source, .. } if source.kind() == ErrorKind::NotFound => {
            failure.hint(format!("make it first: mkdir {}", args.dir.display()))
        }
        Error::Mountpoint { source, .. } if source.kind() == ErrorKind::NotConnected => {
            let dir = args.dir.display();
            failure.hint(format!(
                "the process that served it is gone: forerun umount {dir}"
            ))
        }
        Error::NotPermitted { .. } => failure.hint("--via fuse needs no root"),
        Error::NoDriver { .. } => failure.of(args.image.display()).hint(WITHOUT),
        Error::NoVerity { .. } => failure.hint("--via fuse computes the digests itself"),
        Error::UnknownFormat { .. } | Error::Refused(_) => {
            failure.of(args.image.display()).hint(WITHOUT)
        }
        Error::NoMountApi | Error::Loop { .. } | Error::Cut { .. } => failure.hint(WITHOUT),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn the_option() {
        for (word, expected) in [
            ("via=auto", Some(Some(Via::Auto))),
            ("via=fuse", Some(Some(Via::Fuse))),
            ("via=kernel", Some(Some(Via::Kernel))),
            ("via=", Some(None)),
            ("via", Some(None)),
            ("via=x", Some(None)),
            ("viable", None),
            ("x=via", None),
        ] {
            let via = Via::from_option(word).map(std::result::Result::ok);
            assert_eq!(via, expected, "{word}");
        }
    }

    #[test]
    fn what_the_kernel_cannot_honour() {
        let parse = |words: &[&str]| {
            let cli = Cli::parse_from([&["forerun", "mount"], words, &["a", "b"]].concat());
            match cli.command {
                Command::Mount(args) => args,
                _ => panic!("another command"),
            }
        };
        let args = parse(&[]);
        for (list, expected) in [
            ("", None),
            (
                "ro,offset=1,size=2,device=x,objects=y,basedir=z,verity=on",
                None,
            ),
            ("allow_other,default_permissions,suid,dev,noexec", None),
            ("cache=1M", Some("cache=")),
            ("nolargeblocks", Some("nolargeblocks")),
            ("fmask=077", Some("one of the mount options")),
        ] {
            let options = MountOptions::parse(list).unwrap();
            assert_eq!(for_fuse_only(&args, &options), expected, "{list}");
        }
        let given = for_fuse_only(&parse(&["-f"]), &MountOptions::default());
        assert_eq!(given, Some("--foreground"));
    }
}
