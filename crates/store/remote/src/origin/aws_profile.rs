//! Profiles: the files in which AWS tools keep credentials, region and endpoint.
//!
//! `~/.aws/credentials` has sections `[NAME]`; `~/.aws/config` has sections `[profile NAME]`,
//! `[default]` and `[services NAME]`. Lines are `key = value`; an indented line belongs to the key
//! above it. Only the settings needed to read objects are parsed. A profile whose keys come from
//! another source (single sign-on, another role, a program) is refused with a message; the AWS
//! tools can export variables for it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Size limit of a file, in bytes.
const LIMIT: u64 = 1 << 20;

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Access key and secret key.
    pub keys: Option<(String, String)>,
    pub token: Option<String>,
    pub region: Option<String>,
    /// Endpoint of S3, or else the endpoint of all services.
    pub endpoint: Option<String>,
    /// The setting that names another source for the keys, if the profile has no keys itself.
    pub elsewhere: Option<&'static str>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// Settings that name another source for the keys.
const ELSEWHERE: [&str; 6] = [
    "credential_process",
    "sso_session",
    "sso_start_url",
    "role_arn",
    "web_identity_token_file",
    "credential_source",
];

type Sections = HashMap<String, HashMap<String, String>>;

impl Profile {
    /// Reads the profile `name` from the user's files. Returns `None` if no file has it.
    #[must_use]
    pub fn of_user(name: &str) -> Option<Self> {
        let [credentials, config] = paths().map(|path| read(&path?));
        Self::parse(
            name,
            &credentials.unwrap_or_default(),
            &config.unwrap_or_default(),
        )
    }

    /// Parses the profile `name` from the two files. Returns `None` if neither has it.
    #[must_use]
    pub fn parse(name: &str, credentials: &str, config: &str) -> Option<Self> {
        let (credentials, config) = (sections(credentials), sections(config));
        let secret = credentials.get(name);
        let profile = config.get(&format!("profile {name}"));
        let profile = profile.or_else(|| config.get("default").filter(|_| name == "default"));
        if secret.is_none() && profile.is_none() {
            return None;
        }
        let get = |key: &str| {
            let of = |section: Option<&HashMap<String, String>>| section?.get(key).cloned();
            of(secret)
                .or_else(|| of(profile))
                .filter(|text| !text.is_empty())
        };
        // A key from one file and a secret from the other do not belong together.
        let pair = |section: Option<&HashMap<String, String>>| {
            let section = section?;
            let key = section.get("aws_access_key_id")?;
            let secret = section.get("aws_secret_access_key")?;
            let token = section.get("aws_session_token").cloned();
            Some(((key.clone(), secret.clone()), token))
        };
        let (keys, token) = pair(secret).or_else(|| pair(profile)).unzip();
        let services = get("services").and_then(|name| config.get(&format!("services {name}")));
        let of_s3 = services.and_then(|services| services.get("s3.endpoint_url").cloned());
        let elsewhere = ELSEWHERE.into_iter().find(|key| get(key).is_some());
        Some(Self {
            elsewhere: elsewhere.filter(|_| keys.is_none()),
            keys,
            token: token.flatten(),
            region: get("region"),
            endpoint: of_s3.or_else(|| get("endpoint_url")),
        })
    }
}

pub fn files() -> impl Iterator<Item = PathBuf> {
    paths().into_iter().flatten()
}

/// Returns the paths of the credentials file and the configuration file.
fn paths() -> [Option<PathBuf>; 2] {
    [
        path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        path("AWS_CONFIG_FILE", "config"),
    ]
}

fn path(variable: &str, file: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set(variable)
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".aws").join(file)))
}

fn read(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    if let Err(error) = file.take(LIMIT).read_to_end(&mut text) {
        tracing::warn!(%error, path = %path.display(), "the file cannot be read");
        return None;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Parses all sections and skips other lines. The last of repeated keys counts. A nested key is
/// `above.below`.
fn sections(text: &str) -> Sections {
    let mut sections = Sections::new();
    let mut section = None;
    let mut above = String::new();
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            // Several inner spaces count as one; outer spaces are ignored.
            let name = name.split(']').next().unwrap_or_default();
            let name: Vec<_> = name.split_whitespace().collect();
            section = Some(name.join(" "));
            above.clear();
            continue;
        }
        let (Some(section), Some((key, value))) = (&section, content.split_once('=')) else {
            continue;
        };
        let key = key.trim().to_ascii_lowercase();
        let value = without_remark(value.trim());
        let is_below = line.starts_with([' ', '\t']) && !above.is_empty();
        let key = if is_below {
            format!("{above}.{key}")
        } else {
            above.clear();
            if value.is_empty() {
                above.clone_from(&key);
            }
            key
        };
        let entries = sections.entry(section.clone()).or_default();
        entries.insert(key, value.to_owned());
    }
    sections
}

/// Removes a comment (` #` or ` ;`) from a value.
fn without_remark(value: &str) -> &str {
    let end = value
        .match_indices(['#', ';'])
        .find(|(at, _)| {
            let before = value.get(..*at).unwrap_or_default();
            before.is_empty() || before.ends_with([' ', '\t'])
        })
        .map_or(value.len(), |(at, _)| at);
    value.get(..end).unwrap_or(value).trim_end()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = A\n\
        aws_secret_access_key=S/+=x # not mine\n[ work ]\nAWS_ACCESS_KEY_ID=B\n\
        aws_secret_access_key=T\naws_session_token=U\n[half]\naws_access_key_id=C\n";
    const CONFIG: &str = "[default]\nregion = eu-x\n[profile work]\nregion=r ; remark\n\
        endpoint_url = http://all\nservices = mine\n[services mine]\nsqs =\n  endpoint_url = http://sqs\n\
        s3 =\n  endpoint_url = http://s3\n[profile half]\naws_secret_access_key=D\n\
        credential_process = /bin/x\n[profile sso]\nsso_session = a\n";

    #[test]
    fn profiles_are_read_from_both_files() {
        let of = |name: &str| Profile::parse(name, CREDENTIALS, CONFIG);
        let pair = |key: &str, secret: &str| Some((key.to_owned(), secret.to_owned()));
        let default = of("default").unwrap();
        assert_eq!(default.keys, pair("A", "S/+=x"));
        assert_eq!(
            (default.region.as_deref(), default.token),
            (Some("eu-x"), None)
        );
        let work = of("work").unwrap();
        assert_eq!(
            (work.keys, work.token.as_deref()),
            (pair("B", "T"), Some("U"))
        );
        assert_eq!(work.region.as_deref(), Some("r"));
        assert_eq!(work.endpoint.as_deref(), Some("http://s3"));
        let half = of("half").unwrap();
        assert_eq!(
            (half.keys, half.elsewhere),
            (None, Some("credential_process"))
        );
        assert_eq!(of("sso").unwrap().elsewhere, Some("sso_session"));
        assert_eq!(of("none"), None);
        assert_eq!(of("services mine"), None);
        // In the configuration file, only the default profile has a bare name.
        assert_eq!(Profile::parse("x", "", "[x]\nregion=r\n"), None);
    }

    #[test]
    fn any_text_is_read_without_harm() {
        let both = format!("{CREDENTIALS}{CONFIG}");
        for seed in [CREDENTIALS, CONFIG, &both] {
            forerun_testkit::mutate::each(seed.as_bytes(), 2000, |bytes| {
                let text = String::from_utf8_lossy(bytes);
                let _any = Profile::parse("work", &text, &text);
            });
        }
        let odd = "=\n[\n[]\n[]]\n =\n\t= #\n[default]\n\u{e4}=\u{e4}#\nregion=\n";
        let odd = Profile::parse("default", odd, odd).unwrap();
        assert_eq!(odd, Profile::default());
    }
}
