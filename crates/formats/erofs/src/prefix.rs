//! Prefixes of xattr names: the predefined ones, and the image's own.

use crate::ondisk::XATTR_LONG_PREFIX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Number of the predefined prefix that it starts with.
    base: u8,
    /// The bytes after that prefix.
    infix: Vec<u8>,
    /// The whole prefix. `None` if `base` is no predefined prefix: such names are in no namespace
    /// that a reader can name.
    name: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning<'p> {
    /// Names start with these bytes.
    Name(&'p [u8]),
    /// Xattrs with this prefix are internal to the image, such as digests of files, and are not
    /// shown.
    Hidden,
    Unknown,
}

impl Prefix {
    pub fn new(base: u8, infix: &[u8]) -> Self {
        Self {
            base,
            infix: infix.to_vec(),
            name: short(base).map(|base| [base, infix].concat()),
        }
    }

    /// Returns the prefix as `dump` shows it.
    pub fn text(&self) -> String {
        match &self.name {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => {
                let infix = String::from_utf8_lossy(&self.infix);
                format!("{infix} (base {})", self.base)
            }
        }
    }
}

/// The predefined prefixes, numbered from 1; empty ones are unused.
const SHORT: [&[u8]; 7] = [
    b"",
    b"user.",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"trusted.",
    b"",
    b"security.",
];

pub fn short(index: u8) -> Option<&'static [u8]> {
    let prefix = SHORT.get(usize::from(index)).copied();
    prefix.filter(|prefix| !prefix.is_empty())
}

/// Returns the meaning of an xattr's `e_name_index`.
pub fn find(prefixes: &[Prefix], index: u8) -> Meaning<'_> {
    if index & XATTR_LONG_PREFIX == 0 {
        return short(index).map_or(Meaning::Unknown, Meaning::Name);
    }
    match prefixes.get(usize::from(index & !XATTR_LONG_PREFIX)) {
        Some(Prefix {
            name: Some(name), ..
        }) => Meaning::Name(name),
        Some(Prefix { name: None, .. }) => Meaning::Hidden,
        None => Meaning::Unknown,
    }
}
