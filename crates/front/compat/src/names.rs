//! Names of the users and groups of this system.

use std::collections::HashMap;

/// User and group names from `/etc/passwd` and `/etc/group`.
#[derive(Default)]
pub struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    /// Reads the names. If a file cannot be read, the programs show numbers.
    pub fn read() -> Self {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        Self {
            users: parse(&read("/etc/passwd")),
            groups: parse(&read("/etc/group")),
        }
    }

    pub fn user(&self, id: u32) -> Option<&str> {
        self.users.get(&id).map(String::as_str)
    }

    pub fn group(&self, id: u32) -> Option<&str> {
        self.groups.get(&id).map(String::as_str)
    }
}

/// Parses lines of fields separated by colons: the first is the name, the third the number.
fn parse(text: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        if let Some(id) = fields.nth(1).and_then(|id| id.parse().ok()) {
            names.entry(id).or_insert_with(|| name.to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_owners() {
        let names = parse("root:x:0:0::/:/bin/sh\nbroken\nx:y:z\nb:x:7:\nother:x:0:\n");
        assert_eq!(names.get(&0).map(String::as_str), Some("root"));
        assert_eq!(names.get(&7).map(String::as_str), Some("b"));
        assert_eq!(names.len(), 2);
    }
}
