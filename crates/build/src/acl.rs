//! Computes the mode of a file whose access control list is dropped.

use forerun_vfs::ACL_ACCESS;

use super::NewNode;

const GROUP: u16 = 0o070;
/// Entry tags, from `linux/posix_acl_xattr.h`.
const OWNER_GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
/// Bytes of the version field before the entries, and of one entry.
const HEAD: usize = 4;
const ENTRY: usize = 8;

impl NewNode {
    /// Returns the mode without an access control list. In a file with a list, the group bits of
    /// the mode are the list's mask, which may allow more than the list's own entry for the group.
    #[must_use]
    pub fn mode_without_acl(&self) -> u16 {
        let acl = self.xattrs.get(ACL_ACCESS);
        acl.map_or(self.mode, |acl| without_acl(self.mode, acl))
    }
}

/// Returns the mode of a file after the list `acl` is removed.
pub fn without_acl(mode: u16, acl: &[u8]) -> u16 {
    let entries = acl.get(HEAD..).unwrap_or_default();
    let permissions = |wanted: u16| {
        entries.chunks_exact(ENTRY).find_map(|entry| match *entry {
            [a, b, c, d, ..] if u16::from_le_bytes([a, b]) == wanted => {
                Some(u16::from_le_bytes([c, d]) & 0o7)
            }
            _ => None,
        })
    };
    match permissions(OWNER_GROUP) {
        Some(group) => mode & !GROUP | (group & permissions(MASK).unwrap_or(0o7)) << 3,
        None => mode,
    }
}

#[cfg(test)]
mod tests {
    use forerun_vfs::PosixAcl;

    use super::*;

    #[test]
    fn the_group_gets_what_its_own_entry_and_the_mask_allow() {
        for (mode, text, expected) in [
            (0o674, "u::rw-,u:7:rwx,g::r--,m::rwx,o::r--", 0o644),
            (0o610, "u::rw-,g:7:rwx,g::rwx,m::--x,o::---", 0o610),
            (0o670, "u::rw-,u:7:rwx,g::---,m::rwx,o::---", 0o600),
            (0o4755, "u::rwx,g::r-x,o::r-x", 0o4755),
        ] {
            let acl = PosixAcl::parse(text.as_bytes()).unwrap().to_bytes();
            let found = without_acl(mode, &acl);
            assert_eq!(found, expected, "{text}: {found:o}");
        }
        for damaged in [&b""[..], b"\x02", b"\x02\0\0\0\x04\0\x07"] {
            assert_eq!(without_acl(0o674, damaged), 0o674);
        }
    }
}
