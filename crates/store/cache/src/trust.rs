//! How far a table of chunks is trusted.

/// The trust in the table of a blob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableTrust {
    /// The name of the blob proves the table: the blob is named by its root.
    #[default]
    Proven,
    /// This cache made the table, from bytes that had the digest in the blob's name. The blob is the same
    /// without the table: chunks that were stored without it are compared with it at their first use.
    Made,
    /// The table came from elsewhere, and the caller trusts it. The blob is the same without the table, and
    /// counts as verified only after the whole blob was compared with its digest.
    Claimed,
}
