//! docker-registry, the reference implementation of the OCI registry protocol.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::Server;
use crate::tls::Certificates;
use crate::token::TokenService;
use crate::{PASSWORD, USER, loopback};
use forerun_testkit::{TempDir, require, temp_dir};

/// `htpasswd -Bb` of the user and the password, at the lowest cost. The registry accepts only
/// bcrypt, which Debian's base system cannot make.
const HTPASSWD: &str = "$2b$04$abcdefghijklmnopqrstuuXcjcm5avyCiJoD2uS24xa2lb6fjMB3G";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    None,
    /// User and password, by basic authentication.
    Basic,
    /// Tokens of a separate service, which issues tokens for reading to all clients and tokens for
    /// writing to the user.
    Token,
}

#[derive(Debug)]
pub struct DockerRegistry {
    server: Server,
    tokens: Option<TokenService>,
    certificates: Option<Certificates>,
    _dir: TempDir,
}

impl DockerRegistry {
    pub fn start(auth: Auth) -> Option<Self> {
        Self::start_with(auth, None)
    }

    /// Starts a registry with TLS, and a certificate for `host` from the test's own authority.
    /// Clients assume that servers on this machine have no TLS, so they connect through a
    /// [`Tunnel`](super::Tunnel).
    pub fn start_tls(auth: Auth, host: &str) -> Option<Self> {
        Self::start_with(auth, Some(host))
    }

    fn start_with(auth: Auth, host: Option<&str>) -> Option<Self> {
        let program = require::program("docker-registry").filter(|_| loopback())?;
        let dir = temp_dir("registry");
        let tokens = match auth {
            Auth::Token => {
                let openssl = require::program("openssl")?;
                Some(TokenService::start(openssl, dir.path()))
            }
            Auth::None | Auth::Basic => None,
        };
        let of_auth = match (auth, &tokens) {
            (Auth::Basic, _) => {
                let users = dir.path().join("users");
                let line = format!("{USER}:{HTPASSWD}\n");
                assert_eq!(PASSWORD, "open-sesame", "the hash is of this password");
                fs::write(&users, line).expect("the user is written");
                format!(
                    "auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
                    users.display()
                )
            }
            (_, Some(tokens)) => tokens.configuration(),
            (_, None) => String::new(),
        };
        let certificates = match host {
            Some(host) => {
                let openssl = require::program("openssl")?;
                Some(Certificates::make(&openssl, dir.path(), &[host]))
            }
            None => None,
        };
        let tls = certificates.as_ref().map_or_else(String::new, |made| {
            let (certificate, key) = (made.certificate.display(), made.key.display());
            format!(", tls: {{certificate: {certificate}, key: {key}}}")
        });
        let blobs = dir.path().join("blobs");
        let server = Server::start(dir.path(), "/v2/", |port| {
            let text = format!(
                "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
                 storage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\n\
                 http: {{addr: '127.0.0.1:{port}'{tls}}}\n{of_auth}",
                blobs.display()
            );
            let path = dir.path().join("registry.yml");
            fs::write(&path, text).expect("the configuration is written");
            let mut command = Command::new(&program);
            command.arg("serve").arg(path);
            // It would look for a trace collector.
            command.env("OTEL_TRACES_EXPORTER", "none");
            // It lives for seconds, and garbage collection is half of its work.
            command.env("GOGC", "400");
            command
        });
        Some(Self {
            server,
            tokens,
            certificates,
            _dir: dir,
        })
    }

    /// Returns the PEM certificate of the authority that signed the server's; `None` without TLS.
    pub fn ca(&self) -> Option<&Path> {
        Some(&self.certificates.as_ref()?.ca)
    }

    /// Returns `127.0.0.1:PORT`, as in a reference.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.authority())
    }

    /// Returns how many tokens were issued so far; 0 without a token service.
    pub fn tokens_given(&self) -> usize {
        self.tokens.as_ref().map_or(0, TokenService::given)
    }
}
