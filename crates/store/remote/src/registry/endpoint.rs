//! Endpoint of a registry: scheme, host, port and the path of its API.
//!
//! Plain HTTP is used only on loopback and for hosts that the user has allowed.

use forerun_cache::Digest;
use url::Url;

use crate::address::image_name::ImageName;
use crate::http::local_addresses;
use crate::http::site::{Site, check_plain, is_loopback};
use crate::options::registry::RegistryOptions;
use crate::{RemoteError, Result, redact};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The server that credentials belong to.
    pub site: Site,
    /// The name under which credentials are stored: `HOST` or `HOST:PORT`.
    pub credentials_of: String,
    pub repository: String,
    /// `scheme://host:port/v2/repository/`.
    base: Url,
}

impl Endpoint {
    /// Returns the endpoints of `name`: its mirrors, then the registry itself.
    pub fn all(name: &ImageName, options: &RegistryOptions) -> Result<Vec<Self>> {
        let mut endpoints = Vec::new();
        for mirror in &options.mirrors {
            if mirror.registry == name.registry {
                endpoints.push(Self::of_mirror(&mirror.location, name, options)?);
            }
        }
        endpoints.push(Self::of_registry(name, options)?);
        Ok(endpoints)
    }

    pub fn of_registry(name: &ImageName, options: &RegistryOptions) -> Result<Self> {
        let host = match &*name.registry {
            "docker.io" => "registry-1.docker.io",
            host => host,
        };
        let insecure = options.insecure.contains(&name.registry);
        let without_port =
            host.rsplit_once(':').map_or(
                host,
                |(before, port)| {
                    if port.contains(']') { host } else { before }
                },
            );
        let scheme = if insecure || is_loopback(without_port) {
            "http"
        } else {
            "https"
        };
        let location = format!("{scheme}://{host}");
        Self::at(&location, &name.registry, &name.repository)
            .ok_or_else(|| bad(&name.to_string(), "its host does not make a valid URL"))
    }

    fn of_mirror(location: &str, name: &ImageName, options: &RegistryOptions) -> Result<Self> {
        let refused = |reason: &str| bad(&redact::for_message(location), reason);
        let url = Url::parse(location).map_err(|_| refused("the mirror is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused(
                "credentials are not taken from URLs: log in with docker or podman instead",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("a mirror's URL may not have a query"));
        }
        let host = url
            .host_str()
            .ok_or_else(|| refused("the mirror's URL has no host"))?;
        check_plain(&url, &options.insecure)?;
        let known_as = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        let prefix = url.path().trim_matches('/');
        let repository = match prefix {
            "" => name.repository.clone(),
            prefix => format!("{prefix}/{}", name.repository),
        };
        let root = format!("{}://{known_as}", url.scheme());
        Self::at(&root, &known_as, &repository)
            .ok_or_else(|| refused("the mirror's URL is not one of http or https"))
    }

    fn at(root: &str, credentials_of: &str, repository: &str) -> Option<Self> {
        let base = Url::parse(&format!("{root}/v2/{repository}/")).ok()?;
        local_addresses::allow(&base);
        Some(Self {
            site: Site::of(&base)?,
            credentials_of: credentials_of.to_string(),
            repository: repository.to_string(),
            base,
        })
    }

    /// Returns the address of a manifest. `reference` is a tag or digest.
    pub fn manifest(&self, reference: &str) -> Result<Url> {
        self.join(&format!("manifests/{reference}"))
    }

    pub fn blob(&self, digest: &Digest) -> Result<Url> {
        self.join(&format!("blobs/{digest}"))
    }

    /// Returns the address of the list of artifacts that refer to a manifest and have this type.
    pub fn referrers(&self, subject: &Digest, artifact_type: &str) -> Result<Url> {
        let mut url = self.join(&format!("referrers/{subject}"))?;
        url.query_pairs_mut()
            .append_pair("artifactType", artifact_type);
        Ok(url)
    }

    pub fn uploads(&self) -> Result<Url> {
        self.join("blobs/uploads/")
    }

    fn join(&self, path: &str) -> Result<Url> {
        // Without `./`, the colon of a digest would make the path an absolute URL.
        self.base
            .join(&format!("./{path}"))
            .map_err(|_| bad(self.base.as_str(), "this does not make a valid URL"))
    }
}

fn bad(text: &str, reason: &str) -> RemoteError {
    RemoteError::Reference {
        text: text.to_string(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::registry::Mirror;

    fn urls(name: &str, options: &RegistryOptions) -> Vec<String> {
        Endpoint::all(&name.parse().unwrap(), options)
            .unwrap()
            .iter()
            .map(|endpoint| endpoint.manifest("t").unwrap().to_string())
            .collect()
    }

    #[test]
    fn plain_http_only_where_it_may_be() {
        let mut options = RegistryOptions::default();
        for (name, expected) in [
            (
                "oci://127.0.0.1:5000/a",
                "http://127.0.0.1:5000/v2/a/manifests/t",
            ),
            ("oci://localhost/a", "http://localhost/v2/a/manifests/t"),
            ("oci://[::1]:5000/a", "http://[::1]:5000/v2/a/manifests/t"),
            (
                "oci://localhost.example.org/a",
                "https://localhost.example.org/v2/a/manifests/t",
            ),
            (
                "oci://10.0.0.1:5000/a/b",
                "https://10.0.0.1:5000/v2/a/b/manifests/t",
            ),
            (
                "oci://docker.io/a",
                "https://registry-1.docker.io/v2/library/a/manifests/t",
            ),
        ] {
            assert_eq!(urls(name, &options), [expected], "{name}");
        }
        options.insecure = vec!["10.0.0.1:5000".to_string()];
        assert_eq!(
            urls("oci://10.0.0.1:5000/a", &options),
            ["http://10.0.0.1:5000/v2/a/manifests/t"]
        );
    }

    #[test]
    fn mirrors_come_first_and_may_lie_below_a_path() {
        let mirror = |registry: &str, location: &str| Mirror {
            registry: registry.to_string(),
            location: location.to_string(),
        };
        let options = RegistryOptions {
            mirrors: vec![
                mirror("a.org", "https://m.org:444/cache/"),
                mirror("b.org", "https://other.org"),
                mirror("a.org", "http://10.1.1.1"),
            ],
            insecure: vec!["10.1.1.1".to_string()],
            ..RegistryOptions::default()
        };
        assert_eq!(
            urls("oci://a.org/x", &options),
            [
                "https://m.org:444/v2/cache/x/manifests/t",
                "http://10.1.1.1/v2/x/manifests/t",
                "https://a.org/v2/x/manifests/t"
            ]
        );
        for location in [
            "m.org",
            "ftp://m.org",
            "https://u:secret@m.org",
            "https://m.org/?a=secret",
            "http://10.1.1.1",
        ] {
            let options = RegistryOptions {
                mirrors: vec![mirror("a.org", location)],
                ..RegistryOptions::default()
            };
            let error = Endpoint::all(&"oci://a.org/x".parse().unwrap(), &options).unwrap_err();
            assert!(!error.to_string().contains("u:secret"), "{error}");
        }
    }

    #[test]
    fn blobs_are_below_the_repository() {
        let endpoint = Endpoint::all(&"a.org/x".parse().unwrap(), &RegistryOptions::default())
            .unwrap()
            .remove(0);
        let digest = Digest::of(b"");
        assert_eq!(
            endpoint.blob(&digest).unwrap().as_str(),
            format!("https://a.org/v2/x/blobs/{digest}")
        );
    }
}
