//! The prefixes of xattr names: the predefined ones, and the image's own.

use crate::ondisk::XATTR_LONG_PREFIX;

/// The beginning of the names of many xattrs, from the image's own table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Number of the short prefix that it starts with.
    base: u8,
    /// The bytes that follow the base.
    infix: Vec<u8>,
    /// Both as text. `None` if the base is not the number of a short prefix: names with this prefix
    /// are in no namespace that a reader can name.
    name: Option<Vec<u8>>,
}

/// The meaning of an xattr's `e_name_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning<'p> {
    /// Names start with this.
    Name(&'p [u8]),
    /// Attributes with this prefix are internal to the image (such as digests of files) and are not shown.
    Hidden,
    /// No prefix has this number.
    Unknown,
}

impl Prefix {
    /// Creates the prefix that continues the short one with number `base`.
    pub fn new(base: u8, infix: &[u8]) -> Self {
        Self {
            base,
            infix: infix.to_vec(),
            name: short(base).map(|base| [base, infix].concat()),
        }
    }

    /// Returns the text of `dump`.
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

/// The prefixes with numbers from 1 on; empty ones are unused.
const SHORT: [&[u8]; 7] = [
    b"",
    b"user.",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"trusted.",
    b"",
    b"security.",
];

/// Returns the predefined prefix with that number, if there is one.
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
