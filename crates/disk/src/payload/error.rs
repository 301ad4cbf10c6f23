//! The checks that a container can fail.

/// A failed check, with the numbers needed to find the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the file is {len} bytes long; the header takes {need}")]
    Short { len: u64, need: u64 },
    #[error("{what} lies at {offset:#x} and is {size} bytes long; the file has {len}")]
    Outside {
        what: &'static str,
        offset: u64,
        size: u64,
        len: u64,
    },
    #[error("the ELF class is {class} and the byte order {order}; each must be 1 or 2")]
    ElfIdent { class: u8, order: u8 },
    #[error("entries of the {table} are {size} bytes long, not {expected}")]
    ElfEntry {
        table: &'static str,
        size: u64,
        expected: u64,
    },
    #[error("{count} descriptors take {need} bytes; the header leaves room for {size}")]
    SifRoom { count: u64, need: u64, size: u64 },
    #[error("the partition is empty")]
    SifEmpty,
    #[error("it has several indexes of a container image")]
    SifIndexes,
}
