//! The trust in tables of chunks.

/// The trust in the table of a blob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableTrust {
    /// The name of the blob proves the table: the blob is named by its root.
    #[default]
    Proven,
    /// The table was made here, of bytes that had the digest that the blob is named by. The blob is the same without
    /// the table: chunks that came without it are compared with it at their first use.
    Made,
    /// The table came from elsewhere, and the caller trusts it. The blob is the same without it, and counts as
    /// verified only once all of it was compared with its digest.
    Claimed,
}
