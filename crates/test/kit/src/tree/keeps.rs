//! The attributes of a tree that a format stores.

/// The attributes in which two trees are compared. Names, kinds, contents, targets and device
/// numbers are always compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    pub modes: ModeKept,
    pub owners: bool,
    pub times: bool,
    /// Which names are the same node.
    pub hard_links: bool,
    /// Device nodes, fifos and sockets. If false, they are omitted.
    pub special: bool,
}

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

    /// The attributes that romfs stores: no owners, no times, and only the executable bit of modes.
    pub const ROMFS: Self = Self {
        modes: ModeKept::Executable,
        owners: false,
        times: false,
        hard_links: true,
        special: true,
    };

    /// Names and contents only, for trees that were extracted without root.
    pub const CONTENTS: Self = Self {
        modes: ModeKept::None,
        owners: false,
        times: false,
        hard_links: false,
        special: false,
    };

    pub const fn without_owners(mut self) -> Self {
        self.owners = false;
        self
    }

    pub const fn without_hard_links(mut self) -> Self {
        self.hard_links = false;
        self
    }
}
