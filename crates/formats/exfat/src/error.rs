//! The checks that an image can fail, one variant each.

use forerun_vfs::{Corrupt, Error, NameError, NodeId};

/// A failed check, with the numbers needed to find the bytes. [`at`](Self::at) adds the offset of
/// the structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the image is {len} bytes long; a boot region takes {need}")]
    ShortBoot { len: u64, need: u64 },
    #[error("boot signature {found:#06x} instead of 0xaa55")]
    BootSignature { found: u16 },
    #[error("bytes of the boot sector that must be zero are not")]
    MustBeZero,
    #[error("sectors of 2^{bits} bytes; from 2^9 to 2^12 are allowed")]
    SectorSize { bits: u8 },
    #[error("clusters of 2^{bits} bytes; at most 2^25 are allowed")]
    ClusterSize { bits: u32 },
    #[error("{count} FATs; one or two are allowed")]
    FatCount { count: u8 },
    #[error("{what} is {found}; from {low} to {high} are allowed")]
    BootField {
        what: &'static str,
        found: u64,
        low: u64,
        high: u64,
    },
    #[error("the boot region stores the checksum {found:#010x}, but its bytes have {actual:#010x}")]
    BootChecksum { found: u32, actual: u32 },
    #[error("the volume is {len} bytes long, the image only {image}")]
    ShortImage { len: u64, image: u64 },
    #[error("the backup boot region differs from the main one")]
    BackupDiffers,
    #[error("no {what} in the root directory")]
    Missing { what: &'static str },
    #[error("a second {what} in the root directory")]
    Double { what: &'static str },
    #[error("the {what} is {found} bytes long; {need} are needed")]
    SystemLen {
        what: &'static str,
        found: u64,
        need: u64,
    },
    #[error("the up-case table is {found} bytes long; from 1 to {max} are possible")]
    UpcaseTableLen { found: u64, max: u64 },
    #[error(
        "the volume stores the checksum {found:#010x} of the up-case table, but its bytes have {actual:#010x}"
    )]
    UpcaseChecksum { found: u32, actual: u32 },
    #[error("the up-case table maps {unit:#06x} to {found:#06x}")]
    UpcaseMandatory { unit: u16, found: u16 },
    #[error("the up-case table maps more than 65,536 characters")]
    UpcaseLen,
    #[error("volume label of {count} characters; at most 11 are allowed")]
    LabelLen { count: u8 },
    #[error("cluster {cluster} of the {what} is not on the volume, which has {count} clusters")]
    ClusterRange {
        what: &'static str,
        cluster: u32,
        count: u32,
    },
    #[error("the chain ends after {found} of {need} clusters")]
    ChainShort { found: u64, need: u64 },
    #[error("the chain goes on after the {need} clusters of the data")]
    ChainLong { need: u64 },
    #[error("the chain of the {what} goes on after {need} clusters")]
    SystemLong { what: &'static str, need: u64 },
    #[error("cluster {cluster}, after {found} clusters of the chain, leads to {next:#x}")]
    ChainLink { cluster: u32, found: u64, next: u32 },
    #[error("the chain comes back to cluster {cluster}")]
    ChainLoop { cluster: u32 },
    #[error("{count} clusters from {first} on reach past the volume's {clusters} clusters")]
    RunRange {
        first: u32,
        count: u64,
        clusters: u32,
    },
    #[error("the directory is longer than {limit} bytes")]
    DirectoryLen { limit: u64 },
    #[error("directory of {len} bytes; a whole number of clusters of {cluster} is needed")]
    DirectoryUneven { len: u64, cluster: u64 },
    #[error("entry of the invalid type {found:#04x}")]
    EntryType { found: u8 },
    #[error("entry of type {found:#04x} belongs to no set")]
    Stray { found: u8 },
    #[error("critical entry of type {found:#04x} in a directory other than the root")]
    Misplaced { found: u8 },
    #[error("set of {count} secondary entries, but only {found} follow")]
    SetCut { count: u8, found: usize },
    #[error("set of {count} secondary entries; at least 2 are needed")]
    SetShort { count: u8 },
    #[error("the set stores the checksum {found:#06x}, but its bytes have {actual:#06x}")]
    SetChecksum { found: u16, actual: u16 },
    #[error("secondary entry {index} is of type {found:#04x}, not {need:#04x}")]
    SetOrder { index: usize, found: u8, need: u8 },
    #[error("name of {len} characters in {entries} entries")]
    NameLen { len: u8, entries: usize },
    #[error("name of {len} characters, but its {entries} entries hold more")]
    NameForm { len: u8, entries: usize },
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
    #[error("character {unit:#06x} in the name {name:?}")]
    NameCharacter { name: String, unit: u16 },
    #[error("the set stores the name hash {found:#06x}, but the name has {actual:#06x}")]
    NameHash { found: u16, actual: u16 },
    #[error("the directory has the name {name:?} twice")]
    NameTwice { name: String },
    #[error("the valid length is {valid}, the data length {len}")]
    ValidLen { valid: u64, len: u64 },
    #[error("the attributes {found:#06x} do not match the contents of the clusters")]
    WrongKind { found: u16 },
    #[error("{len} bytes of data, but no cluster")]
    NoCluster { len: u64 },
    #[error("no data, but clusters from {cluster} on")]
    UnusedClusters { cluster: u32 },
    #[error("{len} bytes of data; the volume holds {most}")]
    DataLen { len: u64, most: u64 },
    #[error("cluster {cluster} is in use, but marked free")]
    UsedFree { cluster: u32 },
    #[error("{count} clusters from {first} on are in use, but marked free")]
    UsedFreeRun { first: u32, count: u32 },
    #[error("cluster {cluster} also belongs to another file or directory")]
    CrossLink { cluster: u32 },
    #[error("cluster {cluster} of {path:?} also belongs to another file or directory")]
    CrossLinkOf { cluster: u32, path: String },
    #[error("{count} clusters from {first} on belong to no file, but are marked used")]
    Leaked { first: u32, count: u32 },
    #[error(
        "{count} clusters from {first} on belong to no file, and the volume has no room for a directory \
         that keeps them"
    )]
    NoRoomToKeep { first: u32, count: u32 },
    #[error("no {what} in the root directory, and no room for a new one")]
    NoRoomFor { what: &'static str },
    #[error("the main boot region is not valid")]
    NoMainBoot,
    #[error("the main boot region is damaged; the backup is used")]
    MainBoot,
    #[error("the FAT begins with {found:#018x} instead of 0xfffffffffffffff8")]
    FatHead { found: u64 },
    #[error("the up-case table is damaged")]
    Table,
    #[error("there are entries after the end of the directory, the first of type {found:#04x}")]
    BehindEnd { found: u8 },
    #[error("there are files after the end of the directory")]
    EarlyEnd,
    #[error("critical entry of unknown type {found:#04x} in the root directory")]
    UnknownEntry { found: u8 },
    #[error("critical secondary entry of unknown type {found:#04x}")]
    UnknownSecondary { found: u8 },
    #[error("flags {found:#04x} of the stream extension; 0x01 or 0x03 are allowed")]
    StreamFlags { found: u8 },
    #[error("a power cut interrupted the move of a set to another sector")]
    Stranded,
    #[error("the repair found new problems in every round")]
    NoEnd,
    #[error("the volume is marked dirty")]
    Dirty,
    #[error("the volume is marked as having failed")]
    MediaFailure,
    #[error("reserved field {field} is {value:#x}")]
    Reserved { field: &'static str, value: u64 },
    #[error("the boot sector says that {found} percent are in use; it is {actual}")]
    Percent { found: u8, actual: u8 },
    #[error("the time {value:#010x} with {hundredths} hundredths of a second is not valid")]
    Time { value: u32, hundredths: u8 },
}

impl Check {
    /// Returns the check that fails for clusters in use that are marked free.
    pub const fn used_free(first: u32, count: u32) -> Self {
        match count {
            1 => Self::UsedFree { cluster: first },
            _ => Self::UsedFreeRun { first, count },
        }
    }

    /// Returns the error for this check in the structure at `offset`.
    pub fn at(self, node: Option<NodeId>, offset: u64) -> Error {
        Corrupt::new("exfat", node, offset, self).into()
    }
}
