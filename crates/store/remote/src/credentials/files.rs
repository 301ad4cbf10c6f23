//! Users and passwords for web servers from files, so that addresses need not contain them.
//!
//! If an address has no password, these files are searched in this order: a file in the form of `git
//! credential-store` (an address with user and password on each line) and a netrc file, both named by the
//! caller, and `~/.netrc`. A file that other users may read is refused, since its passwords are no longer
//! secret.
//!
//! An entry applies to its scheme, host and port; in a netrc file to its host, and to its port if it has one.
//! `default` entries are skipped: they would send a password to any server.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use url::Url;

use crate::http::site::Site;
use crate::{RemoteError, Result};

/// Size limit of a credential file, in bytes.
const LONGEST: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// A file with `https://USER:PASSWORD@HOST` on each line.
    pub store: Option<PathBuf>,
    /// A netrc file to use instead of `~/.netrc`.
    pub netrc: Option<PathBuf>,
}

impl CredentialFiles {
    /// Adds the user and password from the credential files to `url`, unless `url` has a password. If `url` names a
    /// user, only the password for that user is used.
    ///
    /// # Errors
    /// [`RemoteError::Reference`] if a file that the caller named cannot be used.
    pub(crate) fn fill(&self, url: &mut Url) -> Result<()> {
        if url.password().is_some() || Site::of(url).is_none() {
            return Ok(());
        }
        let found = match self.find(url)? {
            Some(found) => found,
            None => return Ok(()),
        };
        // Both fail only for addresses without a host.
        let _no_host = url.set_username(&found.user);
        let _no_host = url.set_password(Some(&found.password));
        Ok(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let netrc = self.netrc.clone().or_else(home_netrc);
        self.store.clone().into_iter().chain(netrc)
    }

    fn find(&self, url: &Url) -> Result<Option<Found>> {
        if let Some(path) = &self.store {
            let text = read(path).map_err(|reason| refused(path, reason))?;
            let found = in_store(&text, url).map_err(|reason| refused(path, reason))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if let Some(path) = &self.netrc {
            let text = read(path).map_err(|reason| refused(path, reason))?;
            return Ok(in_netrc(&text, url));
        }
        let Some(path) = home_netrc() else {
            return Ok(None);
        };
        match path.exists().then(|| read(&path)) {
            Some(Ok(text)) => Ok(in_netrc(&text, url)),
            Some(Err(reason)) => {
                tracing::warn!("{} is not used: {reason}", path.display());
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

fn home_netrc() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".netrc"))
}

/// User and password from a file, percent-encoded.
#[derive(Clone, PartialEq, Eq)]
struct Found {
    user: String,
    password: String,
}

fn refused(path: &Path, reason: String) -> RemoteError {
    RemoteError::Reference {
        text: path.display().to_string(),
        reason,
    }
}

/// Reads a credential file. Refuses a file that other users may read.
fn read(path: &Path) -> std::result::Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user".to_owned());
    }
    if metadata.mode() & 0o077 != 0 {
        return Err("other users can read it; run chmod 600 on it".to_owned());
    }
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

/// Finds the entry for `url` in a file of lines `https://USER:PASSWORD@HOST`, as git's credential store writes it.
fn in_store(text: &str, url: &Url) -> std::result::Result<Option<Found>, String> {
    let lines = (1_usize..).zip(text.lines().map(str::trim));
    for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        // The error does not quote the line, which may be a password.
        let bad = || format!("line {number} is not https://USER:PASSWORD@HOST");
        let entry = Url::parse(line).map_err(|_| bad())?;
        let password = entry.password().ok_or_else(bad)?;
        let site = Site::of(&entry).ok_or_else(bad)?;
        let prefix = entry.path().trim_end_matches('/');
        let below = url.path().strip_prefix(prefix);
        let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if Site::of(url) == Some(site) && is_below && is_user(url, entry.username()) {
            return Ok(Some(Found {
                user: entry.username().to_owned(),
                password: password.to_owned(),
            }));
        }
    }
    Ok(None)
}

/// Returns whether an entry for `user` (percent-encoded) applies to `url`, which may name a user.
fn is_user(url: &Url, user: &str) -> bool {
    url.username().is_empty() || url.username() == user
}

/// Finds the entry for `url` in a netrc file. Skips unknown words.
fn in_netrc(text: &str, url: &Url) -> Option<Found> {
    let mut words = Words { rest: text };
    let mut here = false;
    let mut entry: (Option<String>, Option<String>) = (None, None);
    loop {
        let word = words.next();
        if matches!(word.as_deref(), None | Some("machine" | "default")) {
            let ended = std::mem::take(&mut entry);
            if let (true, (Some(user), Some(password))) = (here, ended) {
                let found = Found {
                    user: encoded(&user),
                    password: encoded(&password),
                };
                if is_user(url, &found.user) {
                    return Some(found);
                }
            }
        }
        match word?.as_str() {
            "machine" => here = is_machine(&words.next()?, url),
            "default" => here = false,
            "login" => entry.0 = words.next(),
            "password" => entry.1 = words.next(),
            "account" => drop(words.next()),
            "macdef" => words.skip_past("\n\n"),
            word if word.starts_with('#') => words.skip_past("\n"),
            _ => {}
        }
    }
}

/// Returns whether a machine name of a netrc file matches the server of `url`.
fn is_machine(name: &str, url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let with_port = format!("{host}:{port}");
    [host, bare, &with_port]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

fn encoded(text: &str) -> String {
    text.replace('%', "%25")
}

/// Iterates over words that are separated by spaces, or in double quotes with backslash escapes.
struct Words<'t> {
    rest: &'t str,
}

impl Words<'_> {
    fn next(&mut self) -> Option<String> {
        let rest = self.rest.trim_start();
        let mut chars = rest.char_indices();
        let is_quoted = rest.starts_with('"');
        if is_quoted {
            chars.next();
        }
        let mut word = String::new();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' if is_quoted => {
                    end = at + 1;
                    break;
                }
                '\\' if is_quoted => word.extend(chars.next().map(|(_, c)| c)),
                c if c.is_whitespace() && !is_quoted => {
                    end = at;
                    break;
                }
                c => word.push(c),
            }
        }
        if rest.is_empty() {
            self.rest = rest;
            return None;
        }
        self.rest = rest.get(end..).unwrap_or_default();
        Some(word)
    }

    fn skip_past(&mut self, end: &str) {
        self.rest = self.rest.split_once(end).map_or("", |(_, rest)| rest);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn filled(files: &CredentialFiles, url: &str) -> String {
        let mut url = Url::parse(url).unwrap();
        files.fill(&mut url).unwrap();
        url.into()
    }

    fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn a_netrc_file_has_passwords_for_its_machines_only() {
        let dir = forerun_testkit::temp_dir("netrc");
        let text = "# a comment with machine a login x password y\n\
            machine a.org login ann password one\n\
            machine a.org login bob password two%\n\
            macdef init\nmachine c.org login m password m\n\n\
            machine\n  B.org:8443\n  password \"a b\\\"c\" login 'eve'\n\
            default login anyone password anything\n";
        let files = CredentialFiles {
            store: None,
            netrc: Some(file(dir.path(), "netrc", text)),
        };
        for (url, expected) in [
            ("https://a.org/x", "https://ann:one@a.org/x"),
            ("https://bob@a.org/x", "https://bob:two%25@a.org/x"),
            ("https://eve@a.org/x", "https://eve@a.org/x"),
            ("https://u:p@a.org/x", "https://u:p@a.org/x"),
            ("https://b.org/x", "https://b.org/x"),
            (
                "https://b.org:8443/x",
                "https://'eve':a%20b%22c@b.org:8443/x",
            ),
            ("https://c.org/x", "https://c.org/x"),
        ] {
            assert_eq!(filled(&files, url), expected);
        }
    }

    #[test]
    fn a_file_of_addresses_has_passwords_for_scheme_host_port_and_path() {
        let dir = forerun_testkit::temp_dir("store");
        let text = "# ours\n\nhttps://ann:o%40e@a.org\nhttps://bob:two@b.org:8443/images/\n";
        let files = CredentialFiles {
            store: Some(file(dir.path(), "store", text)),
            netrc: Some(file(dir.path(), "none", "")),
        };
        for (url, expected) in [
            ("https://a.org/x", "https://ann:o%40e@a.org/x"),
            ("https://a.org:444/x", "https://a.org:444/x"),
            ("http://a.org/x", "http://a.org/x"),
            (
                "https://b.org:8443/images/x",
                "https://bob:two@b.org:8443/images/x",
            ),
            ("https://b.org:8443/imagesx", "https://b.org:8443/imagesx"),
        ] {
            assert_eq!(filled(&files, url), expected);
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = forerun_testkit::temp_dir("store");
        let path = file(dir.path(), "store", "https://u:secret@a.org\nsecret\n");
        let fill = |url: &str| {
            let files = CredentialFiles {
                store: Some(path.clone()),
                netrc: None,
            };
            let filled = files.fill(&mut Url::parse(url).unwrap());
            filled.map_err(|error| error.to_string())
        };
        assert_eq!(fill("https://a.org/x"), Ok(()));
        let bad = fill("https://b.org/x").unwrap_err();
        assert!(bad.contains("line 2") && !bad.contains("secret"), "{bad}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let bad = fill("https://a.org/x").unwrap_err();
        assert!(bad.contains("other users can read it"), "{bad}");
    }
}
