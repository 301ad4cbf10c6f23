//! The token service of a registry, to which `Bearer realm="..."` sends a client.
//!
//! Tokens are JSON Web Tokens in the form that docker-registry checks (RS256, the certificate in
//! the header). The service answers only `GET /token?service=...&scope=repository:NAME:ACTIONS`.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use url::form_urlencoded;

use crate::fault_proxy::http::Head;
use crate::port::listen;
use crate::tls::run;
use crate::{PASSWORD, USER};

const ISSUER: &str = "test-issuer";
const SERVICE: &str = "test-registry";
/// Lifetime of a token in seconds.
const LIFETIME: u64 = 300;

#[derive(Debug)]
pub struct TokenService {
    inner: Arc<TokenServiceShared>,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct TokenServiceShared {
    openssl: PathBuf,
    key: PathBuf,
    certificate: PathBuf,
    dir: PathBuf,
    given: AtomicUsize,
    stop: AtomicBool,
}

impl TokenService {
    pub fn start(openssl: PathBuf, dir: &Path) -> Self {
        let (key, certificate) = (dir.join("token.key"), dir.join("token.pem"));
        let mut command = Command::new(&openssl);
        command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"]);
        command.args(["-days", "30", "-subj", "/CN=Tokens of a test"]);
        command
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate);
        run(&mut command);
        let inner = Arc::new(TokenServiceShared {
            openssl,
            key,
            certificate,
            dir: dir.to_path_buf(),
            given: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let (listener, port) = listen();
        let of_thread = Arc::clone(&inner);
        let thread = thread::spawn(move || of_thread.serve(&listener));
        Self {
            inner,
            port,
            thread: Some(thread),
        }
    }

    /// Returns the section about the service in the registry's configuration.
    pub fn configuration(&self) -> String {
        format!(
            "auth: {{token: {{realm: 'http://127.0.0.1:{}/token', service: {SERVICE}, \
             issuer: {ISSUER}, rootcertbundle: {}}}}}\n",
            self.port,
            self.inner.certificate.display()
        )
    }

    pub fn given(&self) -> usize {
        self.inner.given.load(Ordering::Relaxed)
    }
}

impl Drop for TokenService {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _it_may_be_gone = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _its_panic_was_printed = thread.join();
        }
    }
}

impl TokenServiceShared {
    fn serve(&self, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // One request per connection, one after the other, because tokens are rarely requested.
            let _the_client_sees_it = stream.and_then(|stream| self.answer(&stream));
        }
    }

    fn answer(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request = Head::read(&mut BufReader::new(stream))?;
        let request = request.ok_or(io::ErrorKind::UnexpectedEof)?;
        let user = request.get("authorization");
        let expected = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let is_user = user.is_some_and(|user| user == format!("Basic {expected}"));
        let target = request.word(1);
        let (status, body) = match target.split_once('?') {
            // A wrong password is an error; the client does not become anonymous.
            _ if user.is_some() && !is_user => ("401 Unauthorized", "{}".to_string()),
            Some(("/token", query)) => ("200 OK", self.token(query, is_user)),
            _ => ("404 Not Found", "{}".to_string()),
        };
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn token(&self, query: &str, is_user: bool) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let mut access = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if name == "scope"
                && let Some(rest) = value.strip_prefix("repository:")
                && let Some((repository, actions)) = rest.rsplit_once(':')
            {
                let may = |action: &&str| is_user || *action == "pull";
                let actions: Vec<&str> = actions.split(',').filter(may).collect();
                let scope = json!({"type": "repository", "name": repository, "actions": actions});
                access.push(scope);
            }
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let pem = fs::read_to_string(&self.certificate).expect("the certificate");
        let certificate: String = pem.lines().filter(|line| !line.contains("--")).collect();
        let header = json!({"typ": "JWT", "alg": "RS256", "x5c": [certificate]});
        let claims = json!({
            "iss": ISSUER, "sub": USER, "aud": SERVICE, "exp": now + LIFETIME, "nbf": now - 10,
            "iat": now, "jti": number.to_string(), "access": access,
        });
        let mut token = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = self.sign(number, &token);
        let _never_fails = write!(token, ".{}", URL_SAFE_NO_PAD.encode(signature));
        json!({"token": token, "expires_in": LIFETIME}).to_string()
    }

    fn sign(&self, number: usize, text: &str) -> Vec<u8> {
        let file = self.dir.join(format!("token-{number}"));
        fs::write(&file, text).expect("what is to be signed");
        let mut command = Command::new(&self.openssl);
        command.args(["dgst", "-sha256", "-sign"]).arg(&self.key);
        run(command.arg(file))
    }
}
