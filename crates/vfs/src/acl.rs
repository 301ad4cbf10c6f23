//! POSIX.1e access control lists: from the text in archives to the extended attribute of Linux.
//!
//! The text is that of `acl_to_text` (3), with the separators and the numeric ids that `star` adds.
//! The attribute is that of `linux/posix_acl_xattr.h`: a version, and entries of tag, permissions
//! and id.

/// The attribute with the list that is checked at each access.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory with the list that new entries inherit.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

#[must_use]
pub fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// Most entries of a list. The attribute then has 64 KiB, the most that Linux stores.
const ENTRIES_MAX: usize = ((64 << 10) - 4) / 8;
const VERSION: u32 = 2;
/// The id in entries that name no user or group.
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner,
    User,
    OwnerGroup,
    Group,
    Mask,
    Other,
}

impl Tag {
    const fn number(self) -> u16 {
        match self {
            Self::Owner => 0x01,
            Self::User => 0x02,
            Self::OwnerGroup => 0x04,
            Self::Group => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }
}

const TAGS: [Tag; 6] = [
    Tag::Owner,
    Tag::User,
    Tag::OwnerGroup,
    Tag::Group,
    Tag::Mask,
    Tag::Other,
];

/// The kind, the user or group, and the permissions.
type Entry = (Tag, u32, u16);

/// A list that has all entries which Linux requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixAcl(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// The entry has an unknown form, or is a duplicate.
    #[error("entry {0} is not valid")]
    Entry(usize),
    /// The list lacks an entry that every list, or this one, must have.
    #[error("it lacks an entry that it must have")]
    Missing,
    /// The list has more entries than Linux stores.
    #[error("it has more than {ENTRIES_MAX} entries")]
    Long,
    /// The entry names a user or group without its number, so its meaning depends on the machine.
    #[error("entry {0} names a user or group without its number")]
    Name(usize),
}

impl PosixAcl {
    /// Parses entries with commas or line breaks between them. A number after the permissions, or
    /// in the place of the name, is the id.
    ///
    /// # Errors
    /// [`AclError`].
    pub fn parse(text: &[u8]) -> Result<Self, AclError> {
        let mut entries = Vec::new();
        let parts = text.split(|byte| matches!(byte, b',' | b'\n'));
        let parts = parts.map(without_comment).filter(|part| !part.is_empty());
        for (place, part) in parts.enumerate() {
            if entries.len() >= ENTRIES_MAX {
                return Err(AclError::Long);
            }
            entries.push(entry(part, place)?);
        }
        entries.sort_unstable();
        let twice = |pair: &[Entry]| matches!(pair, [a, b] if (a.0, a.1) == (b.0, b.1));
        if let Some(place) = entries.windows(2).position(twice) {
            return Err(AclError::Entry(place));
        }
        let has = |tag| entries.iter().any(|entry| entry.0 == tag);
        let is_whole = [Tag::Owner, Tag::OwnerGroup, Tag::Other]
            .into_iter()
            .all(has);
        let needs_mask = has(Tag::User) || has(Tag::Group);
        if is_whole && (has(Tag::Mask) || !needs_mask) {
            Ok(Self(entries))
        } else {
            Err(AclError::Missing)
        }
    }

    /// Parses the value of the attribute. Returns `None` for a value that Linux does not accept.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk()?;
        let (entries, rest) = entries.as_chunks::<8>();
        let is_valid = u32::from_le_bytes(*version) == VERSION && rest.is_empty();
        if !is_valid || entries.len() > ENTRIES_MAX {
            return None;
        }
        let entries = entries.iter().map(|&[a, b, c, d, e, f, g, h]| {
            let (number, permissions) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            let mut tags = TAGS.into_iter();
            let tag = tags.find(|tag| tag.number() == number && permissions <= 7)?;
            let id = match tag {
                Tag::User | Tag::Group => u32::from_le_bytes([e, f, g, h]),
                _ => NO_ID,
            };
            Some((tag, id, permissions))
        });
        entries.collect::<Option<_>>().map(Self)
    }

    /// Returns the entries with commas between them, as archives store them: each id stands in the
    /// place of the name, and again after the permissions.
    #[must_use]
    pub fn to_text(&self) -> String {
        let entries = self.0.iter().map(|&(tag, id, permissions)| {
            let bit = |bit, letter| if permissions & bit == 0 { '-' } else { letter };
            let rights = String::from_iter([bit(4, 'r'), bit(2, 'w'), bit(1, 'x')]);
            match tag {
                Tag::Owner => format!("user::{rights}"),
                Tag::User => format!("user:{id}:{rights}:{id}"),
                Tag::OwnerGroup => format!("group::{rights}"),
                Tag::Group => format!("group:{id}:{rights}:{id}"),
                Tag::Mask => format!("mask::{rights}"),
                Tag::Other => format!("other::{rights}"),
            }
        });
        entries.collect::<Vec<_>>().join(",")
    }

    /// Returns whether the list says no more than the mode of the file. Linux does not store such
    /// an access list.
    #[must_use]
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// Returns the value of the attribute.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, id, permissions) in &self.0 {
            bytes.extend_from_slice(&tag.number().to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }
}

/// Strips surrounding blanks, and the comment that shows the effective permissions.
fn without_comment(part: &[u8]) -> &[u8] {
    let end = part.iter().position(|&byte| byte == b'#');
    part[..end.unwrap_or(part.len())].trim_ascii()
}

/// Parses `TAG:NAME:PERMISSIONS` or `TAG:NAME:PERMISSIONS:ID`.
fn entry(part: &[u8], place: usize) -> Result<Entry, AclError> {
    let fail = || AclError::Entry(place);
    let mut fields = part.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
    let mut tag = fields.next().ok_or_else(fail)?;
    if matches!(tag, b"default" | b"d") {
        tag = fields.next().ok_or_else(fail)?;
    }
    let mut name = fields.next().ok_or_else(fail)?;
    let mut allowed = fields.next();
    // Some programs write `other:r--`, without the empty name.
    if allowed.is_none() && matches!(tag, b"mask" | b"m" | b"other" | b"o") {
        allowed = Some(std::mem::take(&mut name));
    }
    let id = fields.next();
    if fields.next().is_some() {
        return Err(fail());
    }
    let allowed = permissions(allowed.ok_or_else(fail)?).ok_or_else(fail)?;
    let tag = match (tag, name.is_empty()) {
        (b"user" | b"u", true) => Tag::Owner,
        (b"user" | b"u", false) => Tag::User,
        (b"group" | b"g", true) => Tag::OwnerGroup,
        (b"group" | b"g", false) => Tag::Group,
        (b"mask" | b"m", true) => Tag::Mask,
        (b"other" | b"o", true) => Tag::Other,
        _ => return Err(fail()),
    };
    let id = match (tag, id) {
        (Tag::User | Tag::Group, Some(id)) => number(id).ok_or_else(fail)?,
        (Tag::User | Tag::Group, None) => number(name).ok_or(AclError::Name(place))?,
        (_, Some(_)) => return Err(fail()),
        (_, None) => NO_ID,
    };
    Ok((tag, id, allowed))
}

/// Parses letters and dashes in any order.
fn permissions(text: &[u8]) -> Option<u16> {
    let mut bits = 0;
    for byte in text {
        bits |= match byte {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return None,
        };
    }
    (!text.is_empty() && text.len() <= 3).then_some(bits)
}

fn number(text: &[u8]) -> Option<u32> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok().filter(|&id| id != NO_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn texts_of_all_programs_are_the_attribute_of_linux() {
        let expected = attribute(&[
            (1, 7, NO_ID),
            (2, 5, 9),
            (2, 4, 502),
            (4, 5, NO_ID),
            (8, 6, 77),
            (16, 5, NO_ID),
            (32, 0, NO_ID),
        ]);
        for text in [
            "user::rwx,user:lisa:r--:502,user:9:r-x,group::r-x,group:disk:rw-:77,mask::r-x,other::---",
            "user::rwx\nuser:502:r--\nuser:9:r-x\t#effective:r-x\ngroup::r-x\ngroup:77:rw-\nmask::r-x\nother::---\n",
            "o:-,m:rx,g:77:rw,g::xr,u:502:r,u:x:rx:9,u::rwx",
            "default:user::rwx,d:user:502:r--,d:user:9:r-x,d:group::r-x,d:group:77:rw-,d:mask::r-x,d:other::---",
        ] {
            let acl = PosixAcl::parse(text.as_bytes()).unwrap();
            assert_eq!(acl.to_bytes(), expected, "{text}");
            assert!(!acl.is_mode());
        }
        assert!(
            PosixAcl::parse(b"user::rw-,group::r--,other::r--")
                .unwrap()
                .is_mode()
        );
    }

    #[test]
    fn texts_that_are_no_list_are_refused() {
        let minimal = "user::rw-,group::r--,other::r--";
        let check = |text: &str, expected| {
            assert_eq!(PosixAcl::parse(text.as_bytes()), Err(expected), "{text}");
        };
        check("", AclError::Missing);
        check("user::rw-,group::r--", AclError::Missing);
        check(&format!("{minimal},user:1:r--"), AclError::Missing);
        check(
            &format!("{minimal},user:lisa:r--,mask::r--"),
            AclError::Name(3),
        );
        check(&format!("{minimal},user:4294967295:r--"), AclError::Name(3));
        for wrong in [
            "user",
            "user:",
            "user::",
            "user::rwxr",
            "user::q",
            "mask:a:r--",
            "everyone::r--",
            "user:a:r--:b",
            "user:a:r--:1:2",
            "user::r--:5",
            "default",
            ":::",
            "user:a:r--:-1",
        ] {
            check(&format!("{minimal},{wrong}"), AclError::Entry(3));
        }
        check(&format!("{minimal},other::rwx"), AclError::Entry(2));
        let many: String = (0..9000).map(|id| format!("u:{id}:r,")).collect();
        check(&format!("{minimal},{many}m:r"), AclError::Long);
    }
}
