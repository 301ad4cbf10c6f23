//! nginx: files of a directory, whole and in ranges.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::Server;
use crate::tls::Certificates;
use crate::{PASSWORD, USER, loopback};
use forerun_testkit::{TempDir, require, temp_dir};

#[derive(Clone, Debug, Default)]
pub struct NginxOptions {
    /// User and password, by basic authentication.
    pub basic_auth: bool,
    /// https, with a certificate from the test's own authority.
    pub tls: bool,
    /// More directives of the server's block.
    pub directives: String,
}

#[derive(Debug)]
pub struct Nginx {
    server: Server,
    certificates: Option<Certificates>,
    _dir: TempDir,
}

impl Nginx {
    pub fn serve(files: &Path) -> Option<Self> {
        Self::start(files, &NginxOptions::default())
    }

    pub fn start(files: &Path, options: &NginxOptions) -> Option<Self> {
        let program = require::program("nginx").filter(|_| loopback())?;
        let dir = temp_dir("nginx");
        let certificates = if options.tls {
            let openssl = require::program("openssl")?;
            Some(Certificates::make(&openssl, dir.path(), &[]))
        } else {
            None
        };
        let files = files.canonicalize().expect("the directory to serve");
        let server = Server::start(dir.path(), "/", |port| {
            let text = configuration(dir.path(), &files, options, certificates.as_ref(), port);
            let path = dir.path().join("nginx.conf");
            fs::write(&path, text).expect("the configuration is written");
            let mut command = Command::new(&program);
            command.arg("-c").arg(path);
            // Otherwise it complains about its log in /var/log, unless it runs as root.
            command.args(["-e", "stderr"]);
            command
        });
        Some(Self {
            server,
            certificates,
            _dir: dir,
        })
    }

    pub fn url(&self) -> String {
        let scheme = match self.certificates {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://127.0.0.1:{}", self.server.port())
    }

    pub fn url_of(&self, file: &str) -> String {
        format!("{}/{file}", self.url())
    }

    /// Returns the PEM certificate of the authority that signed the server's; `None` without TLS.
    pub fn ca(&self) -> Option<&Path> {
        Some(&self.certificates.as_ref()?.ca)
    }
}

fn configuration(
    dir: &Path,
    files: &Path,
    options: &NginxOptions,
    certificates: Option<&Certificates>,
    port: u16,
) -> String {
    let NginxOptions { directives, .. } = options;
    let mut of_server = format!("root {};\n{directives}\n", quote(files));
    let listen = match certificates {
        Some(Certificates {
            certificate, key, ..
        }) => {
            of_server += &format!("ssl_certificate {};\n", quote(certificate));
            of_server += &format!("ssl_certificate_key {};\n", quote(key));
            format!("{port} ssl")
        }
        None => port.to_string(),
    };
    if options.basic_auth {
        let users = dir.join("users");
        fs::write(&users, format!("{USER}:{{PLAIN}}{PASSWORD}\n")).expect("the user is written");
        of_server += "auth_basic test;\n";
        of_server += &format!("auth_basic_user_file {};\n", quote(&users));
    }
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {};\n", quote(&dir.join(what))))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log stderr warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_requests 1000000;\n\
         default_type application/octet-stream;\n{temporary}\
         server {{\nlisten 127.0.0.1:{listen};\nserver_name localhost;\n{of_server}}}\n}}\n",
        quote(&dir.join("pid")),
    )
}

fn quote(path: &Path) -> String {
    format!("\"{}\"", path.display())
}
