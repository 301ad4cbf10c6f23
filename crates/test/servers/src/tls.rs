//! A certification authority for the test, and a server certificate from it.

use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub struct Certificates {
    /// The certificate of the authority, which clients trust.
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Certificates {
    /// Makes the certificates in `dir`, for `localhost`, `127.0.0.1` and `hosts`.
    pub fn make(openssl: &Path, dir: &Path, hosts: &[&str]) -> Self {
        let at = |name: &str| dir.join(name);
        let made = Self {
            ca: at("ca.pem"),
            certificate: at("server.pem"),
            key: at("server.key"),
        };
        let request = |subject: &str, key: &Path, out: &Path| {
            let mut command = Command::new(openssl);
            command.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"]);
            command.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", subject]);
            command.arg("-keyout").arg(key).arg("-out").arg(out);
            command
        };
        let ca_key = at("ca.key");
        // The default configuration makes it an authority.
        run(&mut request("/CN=Authority of a test", &ca_key, &made.ca));
        let mut leaf = request("/CN=localhost", &made.key, &made.certificate);
        leaf.arg("-CA").arg(&made.ca).arg("-CAkey").arg(&ca_key);
        let mut names = "subjectAltName=DNS:localhost,IP:127.0.0.1".to_string();
        for host in hosts {
            names += &format!(",DNS:{host}");
        }
        let leaf = leaf.args(["-addext", &names]);
        run(leaf.args(["-addext", "basicConstraints=critical,CA:FALSE"]));
        made
    }
}

pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
