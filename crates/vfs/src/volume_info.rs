#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeInfo {
    pub format: &'static str,
    /// Volume name or label at the time of opening; empty if there is none.
    pub label: Vec<u8>,
    /// Length that the image declares, in bytes; the source may be longer.
    pub image_len: u64,
    /// Block size that statfs reports, in bytes.
    pub block_size: u32,
    /// Number of inodes, if the format stores it.
    pub inodes: Option<u64>,
    /// Longest name that the format can hold, in bytes.
    pub name_max: u32,
    /// Whether any node may have extended attributes.
    pub has_xattrs: bool,
    /// Whether nodes may have access control lists: [`ACL_ACCESS`](crate::ACL_ACCESS),
    /// [`ACL_DEFAULT`](crate::ACL_DEFAULT).
    pub has_acls: bool,
    /// Whether the image stores owners and permissions; if not, front ends may substitute the
    /// caller's.
    pub has_owners: bool,
    /// Whether the image stores modification times; if not, all times are the epoch.
    pub has_times: bool,
    /// Whether names that differ only in case name the same node. A front end that caches names
    /// must then not compare them by their bytes.
    pub folds_case: bool,
    /// Creation time of the image, in seconds since the epoch, if it is stored.
    pub created: Option<i64>,
    /// Further facts in the format's own terms, for `info`.
    pub details: Vec<(&'static str, String)>,
    /// Number of members of the image that are not part of the tree, so that reading the whole tree
    /// does not return them.
    pub left_out: u64,
    /// Warnings for a user of the image; each is a sentence without a full stop.
    pub warnings: Vec<String>,
}

impl VolumeInfo {
    /// Creates a description with only the basic facts: no label, no xattrs, no details.
    #[must_use]
    pub const fn new(format: &'static str, image_len: u64, block_size: u32) -> Self {
        Self {
            format,
            label: Vec::new(),
            image_len,
            block_size,
            inodes: None,
            name_max: 255,
            has_xattrs: false,
            has_acls: false,
            has_owners: true,
            has_times: true,
            folds_case: false,
            created: None,
            details: Vec::new(),
            left_out: 0,
            warnings: Vec::new(),
        }
    }
}
