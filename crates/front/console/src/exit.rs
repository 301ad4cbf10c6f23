//! The exit codes. docs/cli.md documents them.
//!
//! Scripts depend on them: a code never changes its meaning, and new ones are added at the end.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// A problem of the image: no such path, damage, a limit; or `check` found problems.
    Image,
    /// The command line makes no sense.
    Usage,
    /// Not an image of a known format, or one with an unsupported feature.
    Format,
    /// The source (the file or device with the image, or the input of `pack`) could not be read.
    Source,
    /// The output could not be written, or may not be overwritten.
    Output,
    /// Done, except for the listed entries.
    Partial,
    Mount,
    /// `check --repair` found errors, and repaired all of them.
    Repaired,
    /// `mount`: the image is mounted there already.
    Mounted,
    /// Ended by a signal.
    Interrupted,
    /// The exit status of the command that `mount` ran.
    OfCommand(u8),
    /// Standard output has no reader any more, as in `forerun ls ... | head`.
    BrokenPipe,
}

impl Exit {
    /// The meaning of each code, for the man pages.
    pub const MEANINGS: &'static [(Self, &'static str)] = &[
        (Self::Ok, "Success."),
        (
            Self::Image,
            "An error in the image, such as a missing path, damage, or a limit. check: errors were found. scan: nothing was found. diff: there are differences. bench: a run failed, or a driver read other data.",
        ),
        (Self::Usage, "The command line is wrong."),
        (
            Self::Format,
            "The image has no known format, or the format cannot hold the contents.",
        ),
        (
            Self::Source,
            "The image or the input of a new image could not be read.",
        ),
        (
            Self::Output,
            "The output could not be written, or it exists.",
        ),
        (
            Self::Partial,
            "Done in part: the entries that failed were listed. diff: not everything could be compared.",
        ),
        (Self::Mount, "The image could not be mounted or unmounted."),
        (
            Self::Repaired,
            "check --repair: errors were found, and all were repaired.",
        ),
        (
            Self::Mounted,
            "mount: the same image is mounted there already.",
        ),
        (
            Self::Interrupted,
            "Interrupted. No incomplete output was left.",
        ),
        (
            Self::BrokenPipe,
            "The reader of standard output closed it, as head does.",
        ),
    ];

    /// Returns the exit status that the parent process sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Image => 1,
            Self::Usage => 2,
            Self::Format => 3,
            Self::Source => 4,
            Self::Output => 5,
            Self::Partial => 6,
            Self::Mount => 7,
            Self::Repaired => 8,
            Self::Mounted => 9,
            // As a shell reports death by SIGINT and SIGPIPE.
            Self::Interrupted => 130,
            Self::OfCommand(code) => code,
            Self::BrokenPipe => 141,
        }
    }

    /// Returns the first of two failures, because callers look for the first.
    pub const fn and(self, later: Self) -> Self {
        match self {
            Self::Ok | Self::OfCommand(0) => later,
            _ => self,
        }
    }
}
