//! Processes that the program starts from its own executable. The role of each is a hidden
//! subcommand, after a title that process lists show.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use crate::escape::printable;

/// The start of every title. Only the program itself uses it as a name.
const TITLE: &str = "forerun: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Keeps the connection of a mount, and starts its servers.
    Supervisor,
    /// Serves a mount that a supervisor keeps.
    Server,
    /// Serves a mount in the background without a supervisor.
    LoneServer,
    /// Mounts for a sandboxed server.
    Mounter,
    /// Process 1 of a run.
    RunInit,
    /// Becomes the command of a run.
    RunCommand,
    MapWriter,
}

/// The names of the roles. Roles of a mount also have the number of words before `--` and the
/// user's arguments.
const ROLES: &[(Role, &str, usize)] = &[
    (Role::Supervisor, "__supervise", 6),
    (Role::Server, "__serve", 1),
    (Role::LoneServer, "__serve-alone", 1),
    (Role::Mounter, "__mount-for", 1),
    (Role::RunInit, "__run-init", 0),
    (Role::RunCommand, "__run-command", 0),
    (Role::MapWriter, "__run-maps", 0),
];

/// The role of this process, and the words after it.
#[derive(Debug, PartialEq, Eq)]
pub struct InRole {
    pub role: Role,
    pub words: Vec<OsString>,
    /// The user's arguments of the first process.
    pub arguments: Vec<OsString>,
}

impl InRole {
    /// Returns the word with this number, or `None` if it is empty.
    pub fn word(&self, number: usize) -> Option<&OsStr> {
        let word = self.words.get(number).map(OsString::as_os_str);
        word.filter(|word| !word.is_empty())
    }
}

/// Returns the role of this process, or `None` if a user has started it.
pub fn of_this_process() -> Option<&'static InRole> {
    static ROLE: OnceLock<Option<InRole>> = OnceLock::new();
    ROLE.get_or_init(|| parse(std::env::args_os())).as_ref()
}

pub fn is(role: Role) -> bool {
    of_this_process().is_some_and(|this| this.role == role)
}

fn parse(mut argv: impl Iterator<Item = OsString>) -> Option<InRole> {
    let title = argv.next()?;
    let word = argv.next()?;
    let known = ROLES.iter().find(|(_, known, _)| word == *known);
    let (role, _, count) = known.filter(|_| title.as_bytes().starts_with(TITLE.as_bytes()))?;
    let mut words: Vec<_> = argv.collect();
    let mut arguments = Vec::new();
    if *count > 0 {
        let separator = words.get(*count).filter(|word| *word == "--");
        separator?;
        arguments = words.split_off(count + 1);
    }
    Some(InRole {
        role: *role,
        words,
        arguments,
    })
}

pub fn assign(command: &mut Command, role: Role, title: &str) {
    command.arg0(format!("{TITLE}{}", printable(title)));
    let word = ROLES.iter().find(|(known, ..)| *known == role);
    command.args(word.map(|(_, word, _)| word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_takes_a_title_of_the_program() {
        let parsed = |line: &[&str]| parse(line.iter().map(OsString::from));
        let server = [
            "forerun: serves /mnt",
            "__serve",
            "--",
            "--",
            "forerun",
            "--",
        ];
        let server = parsed(&server).unwrap();
        assert_eq!(server.role, Role::Server);
        assert_eq!(server.word(0), Some(OsStr::new("--")));
        assert_eq!(server.arguments, ["forerun", "--"]);
        let lone = parsed(&[
            "forerun: serves /mnt",
            "__serve-alone",
            "",
            "--",
            "squashfuse",
        ]);
        assert_eq!(lone.unwrap().word(0), None);
        for line in [
            &["forerun", "__serve", "", "--", "forerun"][..],
            &["forerun: serves /mnt", "__serve", "--", "forerun"],
            &["unsquashfs", "__serve"],
            &["forerun: serves /mnt"],
            &["forerun: serves /mnt", "mount"],
        ] {
            assert_eq!(parsed(line), None, "{line:?}");
        }
    }
}
