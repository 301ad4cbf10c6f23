//! Credentials that `docker login` or `podman login` stored: `config.json`, `auth.json`.
//!
//! Files are read when a registry asks for credentials, not before. The first file with credentials for the
//! registry wins; a file that cannot be read or parsed is reported and skipped. A key may be a host, a URL,
//! or (podman) a host and a path. The longest key that covers the repository counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use crate::credentials::helper;
use crate::credentials::secret::Secret;

/// Size limit. Files of docker and podman are far smaller.
const MAX_FILE: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    Password {
        user: String,
        password: Secret,
    },
    /// A refresh token, to be exchanged for access tokens.
    Identity(Secret),
    /// A token that is sent unchanged.
    Bearer(Secret),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    auths: Option<HashMap<String, AuthEntry>>,
    cred_helpers: Option<HashMap<String, String>>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

pub fn find(files: &[PathBuf], registry: &str, repository: &str) -> Option<Credentials> {
    files.iter().find_map(|file| {
        let config = read(file)?;
        config.find(registry, repository)
    })
}

/// Returns the files in which podman and docker keep credentials, in search order.
pub fn usual_files() -> Vec<PathBuf> {
    let path = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let home = path("HOME");
    let below_home = |rest: &str| home.as_ref().map(|home| home.join(rest));
    [
        path("REGISTRY_AUTH_FILE"),
        path("DOCKER_CONFIG").map(|dir| dir.join("config.json")),
        path("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
        path("XDG_CONFIG_HOME")
            .or_else(|| below_home(".config"))
            .map(|dir| dir.join("containers/auth.json")),
        below_home(".docker/config.json"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub fn name_a_helper(files: &[PathBuf]) -> bool {
    let configs = files.iter().filter_map(|file| read(file));
    let mut named = configs.map(|config| {
        let helpers = config
            .cred_helpers
            .is_some_and(|helpers| !helpers.is_empty());
        helpers || config.creds_store.is_some_and(|store| !store.is_empty())
    });
    named.any(|is_named| is_named)
}

fn read(file: &Path) -> Option<Config> {
    let text = match read_limited(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "credentials cannot be read");
            return None;
        }
    };
    // The parser's own message may quote the file.
    serde_json::from_slice(&text)
        .map_err(|error| {
            let (line, column) = (error.line(), error.column());
            tracing::warn!(file = %file.display(), line, column, "the credentials file has unexpected JSON");
        })
        .ok()
}

/// Parses `bytes` as a file, for fuzzing. Starts no credential helper.
#[cfg(feature = "fuzzing")]
pub fn exercise(bytes: &[u8]) {
    if let Ok(config) = serde_json::from_slice::<Config>(bytes) {
        let _any =
            best(config.auths.as_ref(), "docker.io", "library/a").map(AuthEntry::credentials);
        let _any = best(config.cred_helpers.as_ref(), "host:5000", "a/b");
    }
}

fn read_limited(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?
        .take(MAX_FILE)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Config {
    fn find(&self, registry: &str, repository: &str) -> Option<Credentials> {
        let server = match registry {
            "docker.io" => "https://index.docker.io/v1/",
            registry => registry,
        };
        let helper = best(self.cred_helpers.as_ref(), registry, repository);
        if let Some(helper) = helper.filter(|helper| !helper.is_empty()) {
            return helper::ask(helper, server);
        }
        let stored =
            best(self.auths.as_ref(), registry, repository).and_then(AuthEntry::credentials);
        if stored.is_some() {
            return stored;
        }
        let store = self
            .creds_store
            .as_deref()
            .filter(|name| !name.is_empty())?;
        helper::ask(store, server)
    }
}

/// Returns the value of the longest key that covers `registry/repository`.
fn best<'a, T>(
    map: Option<&'a HashMap<String, T>>,
    registry: &str,
    repository: &str,
) -> Option<&'a T> {
    let wanted = format!("{registry}/{repository}");
    map?.iter()
        .filter_map(|(key, value)| {
            let key = normal(key);
            let rest = wanted.strip_prefix(&*key)?;
            (rest.is_empty() || rest.starts_with('/')).then_some((key.len(), value))
        })
        .max_by_key(|(len, _)| *len)
        .map(|(_, value)| value)
}

/// Returns a key without its scheme. Reduces a URL such as docker's `https://host/v1/` to its host.
fn normal(key: &str) -> String {
    let url = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let text = match url {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => key.trim_end_matches('/'),
    };
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let host = match &*host.to_ascii_lowercase() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_string(),
        host => host.to_string(),
    };
    // Docker Hub's old key, without a scheme.
    if host == "docker.io" && path == "/v1" {
        return host;
    }
    host + path
}

impl AuthEntry {
    fn credentials(&self) -> Option<Credentials> {
        let secret = |text: &str| Secret(text.to_string());
        if !self.registrytoken.is_empty() {
            return Some(Credentials::Bearer(secret(&self.registrytoken)));
        }
        if !self.identitytoken.is_empty() {
            return Some(Credentials::Identity(secret(&self.identitytoken)));
        }
        if !self.auth.is_empty() {
            return decode(&self.auth);
        }
        (!self.username.is_empty()).then(|| Credentials::Password {
            user: self.username.clone(),
            password: secret(&self.password),
        })
    }
}

/// Decodes base64 (padded or not) of `user:password`.
fn decode(auth: &str) -> Option<Credentials> {
    let lenient =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&STANDARD, lenient)
        .decode(auth.trim())
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Credentials::Password {
        user: user.to_string(),
        // Some programs end the password with a NUL.
        password: Secret(password.trim_end_matches('\0').to_string()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password {
            user: user.to_string(),
            password: Secret(password.to_string()),
        })
    }

    #[test]
    fn the_key_that_covers_most_counts() {
        let config: Config = serde_json::from_str(
            r#"{"auths": {
                "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
                "h:5000": {"auth": "YTpi"},
                "h:5000/team": {"auth": "dGVhbTpjOmQ="},
                "h:5000/team/x": {"username": "u", "password": "p"},
                "https://token.org": {"identitytoken": "it", "auth": "YTpi"},
                "bearer.org": {"registrytoken": "rt"},
                "broken.org": {"auth": "!"},
                "empty.org": {}
            }, "unknown": [1], "credHelpers": null, "credsStore": ""}"#,
        )
        .unwrap();
        for (registry, repository, expected) in [
            ("docker.io", "library/a", password("hub", "pw")),
            ("h:5000", "other", password("a", "b")),
            ("h:5000", "teams", password("a", "b")),
            ("h:5000", "team/y", password("team", "c:d")),
            ("h:5000", "team/x", password("u", "p")),
            ("h", "team", None),
            ("h:50001", "a", None),
            (
                "token.org",
                "a",
                Some(Credentials::Identity(Secret("it".into()))),
            ),
            (
                "bearer.org",
                "a",
                Some(Credentials::Bearer(Secret("rt".into()))),
            ),
            ("broken.org", "a", None),
            ("empty.org", "a", None),
        ] {
            assert_eq!(
                config.find(registry, repository),
                expected,
                "{registry}/{repository}"
            );
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = format!("{:?}", password("user", "hidden"));
        assert!(!text.contains("hidden"), "{text}");
    }

    #[test]
    fn files_that_are_broken_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let (broken, good) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&broken, "{\"auths\": 3}").unwrap();
        std::fs::write(&good, r#"{"auths":{"h":{"auth":"YTpi"}}}"#).unwrap();
        let files = [
            dir.path().join("none"),
            dir.path().to_path_buf(),
            broken,
            good,
        ];
        assert_eq!(find(&files, "h", "r"), password("a", "b"));
    }
}
