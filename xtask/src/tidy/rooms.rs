//! The folder of a crate says what it is, and so what it may depend on.
//!
//! A new format is a folder in `crates/formats`; no table of this program has to learn its name.

/// The kind of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// `crates/sys`: system calls that no safe wrapper has.
    Sys,
    /// `crates/io`: files, devices, caches of blocks.
    Io,
    /// `crates/codec`: compressors.
    Codec,
    /// `crates/vfs`: the seam between drivers and engine.
    Vfs,
    /// `crates/disk`: what holds images.
    Disk,
    /// `crates/spans`: compressed streams, cut into blocks.
    Spans,
    /// `crates/build`: what writers of images share.
    Build,
    /// `crates/engine`: moves the blocks.
    Engine,
    /// `crates/layers`: several filesystems shown as one.
    Layers,
    /// `crates/formats/*`: a driver, and its writer where it has one.
    Format,
    /// `crates/store/cache`: chunks of remote images on disk.
    Cache,
    /// `crates/store/remote`: the only crate that opens sockets.
    Remote,
    /// `crates/forerun`: the library.
    Library,
    /// `crates/front/*`: what users meet.
    Front,
    /// `crates/front/console` and `crates/front/compat`: parts of the program.
    Part,
    /// `crates/front/cli`, and the libraries for C and Python: they put front ends together.
    Program,
    /// `crates/front/sandbox`: what a process gives up.
    Sandbox,
    /// `crates/front/runtime`: the program in AppImages, over a driver and nothing between.
    Runtime,
    /// `crates/test/kit`: what all tests share.
    Test,
    /// `crates/test/servers`: servers for the tests of what fetches.
    Servers,
    /// Fuzz targets, benches and this program: they look at everything, and nothing looks at them.
    Observer,
}

impl Room {
    /// Returns the kind of the crate that a path below the root belongs to, and the crate's folder.
    pub fn of(path: &str) -> Option<(Self, &str)> {
        let parts: Vec<&str> = path.split('/').collect();
        let (room, depth) = match *parts.as_slice() {
            ["crates", "sys", ..] => (Self::Sys, 2),
            ["crates", "io", ..] => (Self::Io, 2),
            ["crates", "codec", ..] => (Self::Codec, 2),
            ["crates", "vfs", ..] => (Self::Vfs, 2),
            ["crates", "disk", ..] => (Self::Disk, 2),
            ["crates", "spans", ..] => (Self::Spans, 2),
            ["crates", "build", ..] => (Self::Build, 2),
            ["crates", "engine", ..] => (Self::Engine, 2),
            ["crates", "layers", ..] => (Self::Layers, 2),
            ["crates", "forerun", ..] => (Self::Library, 2),
            ["crates", "formats", _, ..] => (Self::Format, 3),
            ["crates", "store", "cache", ..] => (Self::Cache, 3),
            ["crates", "store", "remote", ..] => (Self::Remote, 3),
            ["crates", "front", "c" | "cli", ..] => (Self::Program, 3),
            ["crates", "front", "compat" | "console", ..] => (Self::Part, 3),
            ["crates", "front", "sandbox", ..] => (Self::Sandbox, 3),
            ["crates", "front", "runtime", ..] => (Self::Runtime, 3),
            ["crates", "front", _, ..] => (Self::Front, 3),
            ["crates", "test", "kit", ..] => (Self::Test, 3),
            ["crates", "test", "servers", ..] => (Self::Servers, 3),
            ["crates", "test", "fuzzing", ..] => (Self::Observer, 3),
            ["python", ..] => (Self::Program, 1),
            ["fuzz" | "bench" | "xtask", ..] => (Self::Observer, 1),
            _ => return None,
        };
        let len = parts[..depth]
            .iter()
            .map(|part| part.len() + 1)
            .sum::<usize>()
            - 1;
        Some((room, &path[..len]))
    }

    /// Returns whether a crate of this kind may depend on one of the kind `on`, tests aside.
    pub fn may_depend_on(self, on: Self) -> bool {
        use Room::{
            Build, Cache, Codec, Engine, Format, Front, Io, Library, Remote, Sandbox, Spans, Vfs,
        };
        let is_base = on.is_base();
        if on == Self::Sys {
            return self != Self::Sys;
        }
        match self {
            Self::Sys | Io | Codec | Sandbox => false,
            Vfs => matches!(on, Io | Codec),
            Self::Disk => matches!(on, Io | Vfs),
            Build | Engine | Spans | Self::Layers => matches!(on, Io | Codec | Vfs),
            Format => matches!(on, Io | Codec | Vfs | Build | Spans),
            Cache => on == Io,
            Remote => matches!(on, Io | Cache),
            Library => is_base || matches!(on, Self::Layers | Self::Disk | Format | Cache | Remote),
            Front => is_base || on == Library,
            Self::Runtime => matches!(on, Io | Codec | Vfs | Format),
            Self::Part | Self::Program => {
                is_base || matches!(on, Library | Front | Sandbox | Self::Part)
            }
            Self::Test => is_base,
            Self::Servers => is_base || on == Self::Test,
            Self::Observer => true,
        }
    }

    /// Returns whether front ends and tests build upon it directly.
    fn is_base(self) -> bool {
        use Room::{Build, Codec, Engine, Io, Spans, Vfs};
        matches!(self, Io | Codec | Vfs | Build | Engine | Spans)
    }

    /// Returns whether it knows no driver: they may depend on it, it moves the blocks that they name, or it
    /// merges their trees.
    pub fn is_below_formats(self) -> bool {
        self.is_base() || self == Self::Layers
    }

    /// Returns whether users meet it: a front end, or a program made of them.
    pub fn is_front(self) -> bool {
        matches!(self, Self::Front | Self::Part | Self::Program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (path, expected) in [
            ("crates/io/src/a.rs", Some((Room::Io, "crates/io"))),
            ("crates/forerun", Some((Room::Library, "crates/forerun"))),
            (
                "crates/layers/src/a.rs",
                Some((Room::Layers, "crates/layers")),
            ),
            (
                "crates/formats/new/src/lib.rs",
                Some((Room::Format, "crates/formats/new")),
            ),
            (
                "crates/front/cli/tests/a.rs",
                Some((Room::Program, "crates/front/cli")),
            ),
            ("crates/front/new", Some((Room::Front, "crates/front/new"))),
            (
                "crates/front/runtime/src/elf.rs",
                Some((Room::Runtime, "crates/front/runtime")),
            ),
            ("python/src/lib.rs", Some((Room::Program, "python"))),
            (
                "crates/test/servers/src/lib.rs",
                Some((Room::Servers, "crates/test/servers")),
            ),
            ("xtask/src/main.rs", Some((Room::Observer, "xtask"))),
            ("crates/store/new", None),
            ("crates/new/src/lib.rs", None),
            ("README.md", None),
        ] {
            assert_eq!(Room::of(path), expected, "{path}");
        }
    }
}
