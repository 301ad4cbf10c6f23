//! Looks up users and groups in the files of this system. Network directories are ignored, because
//! an image should not depend on them.

use std::fs;

pub const PASSWD: &str = "/etc/passwd";
pub const GROUP: &str = "/etc/group";

/// Returns the number of a user or group. `root` is always 0.
pub fn look_up(file: &str, name: &[u8]) -> Option<u32> {
    if name == b"root" {
        return Some(0);
    }
    find(&fs::read(file).ok()?, name)
}

/// Returns the user id for a number or a user name of this system.
#[must_use]
pub fn user_id(word: &[u8]) -> Option<u32> {
    id(word, PASSWD)
}

/// Returns the group id for a number or a group name of this system.
#[must_use]
pub fn group_id(word: &[u8]) -> Option<u32> {
    id(word, GROUP)
}

fn id(word: &[u8], file: &str) -> Option<u32> {
    match word.first() {
        Some(b'0'..=b'9') => std::str::from_utf8(word).ok()?.parse().ok(),
        _ => look_up(file, word),
    }
}

fn find(lines: &[u8], name: &[u8]) -> Option<u32> {
    lines.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let found = fields.next() == Some(name) && !name.is_empty();
        let number = fields.nth(1).filter(|_| found)?;
        std::str::from_utf8(number).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_field_is_the_number() {
        let file = b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:100::/:\nbad:x:y\n";
        assert_eq!(find(file, b"user"), Some(1000));
        assert_eq!(find(file, b"bad"), None);
        assert_eq!(find(file, b"other"), None);
        assert_eq!(find(file, b""), None);
    }
}
