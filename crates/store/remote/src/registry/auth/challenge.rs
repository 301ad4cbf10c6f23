//! The `WWW-Authenticate` header: the authentication that a server asks for.
//!
//! By RFC 9110, section 11, the header is a list of challenges, each with a scheme and parameters.
//! Commas separate both challenges and parameters. Only `Bearer` (with realm, service, scope) and
//! `Basic` are supported; others are skipped.

use crate::http::parameter;

/// Length limit of a header, in bytes.
const MAX_HEADER: usize = 8 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// The server requires user and password with each request.
    Basic,
    /// The server requires a token from the server at `realm`.
    Bearer {
        /// URL of the token server, unchecked.
        realm: String,
        service: Option<String>,
        /// The access that the token must allow. Forerun ignores it and requests the access that it
        /// needs.
        scope: Option<String>,
    },
}

/// Returns the challenge to answer. Prefers tokens to passwords.
pub fn parse(header: &str) -> Option<Challenge> {
    if header.len() > MAX_HEADER {
        return None;
    }
    let mut basic = false;
    for (scheme, parameters) in challenges(header) {
        if scheme.eq_ignore_ascii_case("bearer") {
            let find = |name: &str| {
                parameters
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value.clone())
            };
            if let Some(realm) = find("realm") {
                return Some(Challenge::Bearer {
                    realm,
                    service: find("service"),
                    scope: find("scope"),
                });
            }
        }
        basic |= scheme.eq_ignore_ascii_case("basic");
    }
    basic.then_some(Challenge::Basic)
}

type Parameters = Vec<(String, String)>;

/// Splits a header into challenges. A word without a following `=` starts a new challenge.
fn challenges(header: &str) -> Vec<(String, Parameters)> {
    let mut found: Vec<(String, Parameters)> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=', '"']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            return found;
        }
        let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        let Some(value) = value else {
            found.push((word.to_string(), Vec::new()));
            rest = after;
            continue;
        };
        let Some((value, after)) =
            parameter::value(value.trim_start_matches([' ', '\t']), &[' ', '\t', ','])
        else {
            return found;
        };
        if let Some((_, parameters)) = found.last_mut() {
            parameters.push((word.to_string(), value));
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer {
            realm: realm.to_string(),
            service: service.map(ToString::to_string),
            scope: scope.map(ToString::to_string),
        })
    }

    #[test]
    fn headers_of_registries_are_understood() {
        for (header, expected) in [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/a:pull,push""#,
                bearer(
                    "https://auth.docker.io/token",
                    Some("registry.docker.io"),
                    Some("repository:library/a:pull,push"),
                ),
            ),
            (
                "bearer realm=https://x/t , error=\"a b\"",
                bearer("https://x/t", None, None),
            ),
            (r#"Basic realm="a, Bearer realm=b""#, Some(Challenge::Basic)),
            (
                r#"Basic realm="x", Bearer realm="https://y""#,
                bearer("https://y", None, None),
            ),
            (r#"Negotiate, Basic realm="x""#, Some(Challenge::Basic)),
            (r#"Bearer realm="a\"b""#, bearer("a\"b", None, None)),
            ("Bearer", None),
            ("Bearer realm=\"open", None),
            ("", None),
            ("=,=,\"", None),
            (&"a ".repeat(5000), None),
        ] {
            assert_eq!(parse(header), expected, "{header}");
        }
    }
}
