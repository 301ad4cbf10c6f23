//! The attributes of a tree that a format keeps.

/// The attributes in which two trees are compared. Names, kinds, contents, targets and device
/// numbers always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    pub modes: ModeKept,
    pub owners: bool,
    /// Seconds of the time of modification.
    pub times: bool,
    /// Which names are one node.
    pub hard_links: bool,
    /// Device nodes, fifos and sockets; where not, they are left out.
    pub special: bool,
}

/// The permission bits that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeKept {
    All,
    /// Whether any user can execute a regular file.
    Executable,
    None,
}

impl Keeps {
    pub const EVERYTHING: Self = Self {
        modes: ModeKept::All,
        owners: true,
        times: true,
        hard_links: true,
        special: true,
    };

    /// The attributes that romfs keeps: no owners, no times, and of modes only whether a file is
    /// executable.
    pub const ROMFS: Self = Self {
        modes: ModeKept::Executable,
        owners: false,
        times: false,
        hard_links: true,
        special: true,
    };

    /// Names and contents only: what can be compared where a tree was extracted without root.
    pub const CONTENTS: Self = Self {
        modes: ModeKept::None,
        owners: false,
        times: false,
        hard_links: false,
        special: false,
    };

    /// Returns these settings with owners not compared.
    pub const fn without_owners(mut self) -> Self {
        self.owners = false;
        self
    }

    /// Returns the same without hard links.
    pub const fn without_hard_links(mut self) -> Self {
        self.hard_links = false;
        self
    }
}
