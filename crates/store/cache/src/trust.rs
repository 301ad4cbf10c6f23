//! How far a chunk table is trusted.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableTrust {
    /// The name of the blob proves the table: it is the table's root.
    #[default]
    Proven,
    /// This cache built the table, from bytes that matched the digest in the blob's name. Chunks
    /// stored without the table are compared with it at their first use.
    Made,
    /// The table came from elsewhere, and the caller trusts it. The blob counts as verified only
    /// after the whole was compared with its digest.
    Claimed,
}
