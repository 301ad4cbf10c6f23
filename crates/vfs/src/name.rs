//! Rules for the bytes of a directory entry's name.

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("empty name")]
    Empty,
    /// `.` or `..`, which mean the directory itself and its parent.
    #[error("name is . or ..")]
    Dots,
    /// A slash, which would make the name a path.
    #[error("name contains a slash")]
    Slash,
    /// A NUL, which would end the name early.
    #[error("name contains a NUL byte")]
    Nul,
    /// Longer than [`Limits::name_len`](crate::Limits::name_len).
    #[error("name of {len} bytes is longer than {limit}")]
    TooLong { len: usize, limit: usize },
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        match error {
            NameError::TooLong { limit, .. } => Self::NameTooLong {
                limit,
                unit: "bytes",
            },
            other => Self::InvalidName(other.to_string()),
        }
    }
}

/// Accepts a name that is safe as one component of a path. Drivers check each name that they read,
/// and writers each name that they write; extraction, mounts and listings rely on it.
///
/// # Errors
/// The first rule that `name` breaks.
pub fn check_name(name: &[u8], limit: usize) -> Result<(), NameError> {
    match name {
        b"" => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        _ if name.len() > limit => Err(NameError::TooLong {
            len: name.len(),
            limit,
        }),
        _ if name.contains(&b'/') => Err(NameError::Slash),
        _ if name.contains(&0) => Err(NameError::Nul),
        _ => Ok(()),
    }
}

/// Namespaces of extended attributes on Linux. A namespace alone is not a valid name.
const NAME_SPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];

/// Accepts the full name of an extended attribute. Slashes and dots are valid anywhere in it.
///
/// # Errors
/// [`NameError::Nul`], [`NameError::TooLong`], and [`NameError::Empty`] for a namespace alone.
pub fn check_xattr_name(name: &[u8], limit: usize) -> Result<(), NameError> {
    match name.len() {
        _ if name.contains(&0) => Err(NameError::Nul),
        len if len > limit => Err(NameError::TooLong { len, limit }),
        _ if name.is_empty() || NAME_SPACES.contains(&name) => Err(NameError::Empty),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_extended_attributes() {
        let long = [b'x'; 256];
        let too_long = NameError::TooLong {
            len: 256,
            limit: 255,
        };
        for (name, expected) in [
            (&b"user.a"[..], Ok(())),
            (b"user.ends.with.dots..", Ok(())),
            (b"trusted.overlay.", Ok(())),
            (b"user.a/b", Ok(())),
            (b".", Ok(())),
            (b"system.posix_acl_access", Ok(())),
            (b"user.", Err(NameError::Empty)),
            (b"", Err(NameError::Empty)),
            (b"user.a\0", Err(NameError::Nul)),
            (b"user.a/b\0c", Err(NameError::Nul)),
            (&long, Err(too_long)),
        ] {
            assert_eq!(check_xattr_name(name, 255), expected, "{name:?}");
        }
    }

    #[test]
    fn rules() {
        let long = [b'x'; 256];
        for (name, expected) in [
            (&b"a"[..], Ok(())),
            (b"...", Ok(())),
            (b"\xff\n", Ok(())),
            (b"", Err(NameError::Empty)),
            (b".", Err(NameError::Dots)),
            (b"..", Err(NameError::Dots)),
            (b"a/b", Err(NameError::Slash)),
            (b"a\0", Err(NameError::Nul)),
            (&long[..255], Ok(())),
            (
                &long,
                Err(NameError::TooLong {
                    len: 256,
                    limit: 255,
                }),
            ),
        ] {
            assert_eq!(check_name(name, 255), expected, "{name:?}");
        }
    }
}
