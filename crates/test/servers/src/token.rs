//! The token service of a registry, to which `Bearer realm="..."` sends a client.
//!
//! Tokens are JSON Web Tokens as docker-registry checks them (RS256, the certificate in the header). The
//! service answers `GET /token?service=...&scope=repository:NAME:ACTIONS` and nothing else.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::port::listen;
use crate::tls::run;
use crate::{PASSWORD, USER};

const ISSUER: &str = "test-issuer";
const SERVICE: &str = "test-registry";
/// Seconds that a token is good for.
const LIFETIME: u64 = 300;

/// A running service.
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
    /// Starts one with a key of its own.
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

    /// Returns the section about it in the registry's configuration.
    pub fn configuration(&self) -> String {
        format!(
            "auth: {{token: {{realm: 'http://127.0.0.1:{}/token', service: {SERVICE}, \
             issuer: {ISSUER}, rootcertbundle: {}}}}}\n",
            self.port,
            self.inner.certificate.display()
        )
    }

    /// Returns how many tokens were issued.
    pub fn given(&self) -> usize {
        self.inner.given.load(Ordering::Relaxed)
    }
}

impl Drop for TokenService {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        // Wakes it up.
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
            // One request for each connection, one after the other: tokens are rarely asked for.
            let _the_client_sees_it = stream.and_then(|stream| self.answer(&stream));
        }
    }

    fn answer(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut lines = BufReader::new(stream.take(1 << 16)).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut user = None;
        for line in lines {
            let line = line?;
            match line.split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                    user = Some(value.to_string());
                }
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        let expected = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let is_user = user == Some(format!("Basic {expected}"));
        let target = first.split(' ').nth(1).unwrap_or_default();
        let (status, body) = match target.split_once('?') {
            // A wrong password is an error; the client does not become an anonymous one.
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
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value);
            let mut words = value.splitn(2, ':');
            if let ("scope", Some("repository"), Some(rest)) = (name, words.next(), words.next())
                && let Some((repository, actions)) = rest.rsplit_once(':')
            {
                let may = |action: &&str| is_user || *action == "pull";
                let actions: Vec<String> = actions
                    .split(',')
                    .filter(may)
                    .map(|action| format!("\"{action}\""))
                    .collect();
                access.push(format!(
                    "{{\"type\":\"repository\",\"name\":\"{repository}\",\"actions\":[{}]}}",
                    actions.join(",")
                ));
            }
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let pem = fs::read_to_string(&self.certificate).expect("the certificate");
        let certificate: String = pem.lines().filter(|line| !line.contains("--")).collect();
        let header = format!("{{\"typ\":\"JWT\",\"alg\":\"RS256\",\"x5c\":[\"{certificate}\"]}}");
        let claims = format!(
            "{{\"iss\":\"{ISSUER}\",\"sub\":\"{USER}\",\"aud\":\"{SERVICE}\",\"exp\":{},\
             \"nbf\":{},\"iat\":{now},\"jti\":\"{number}\",\"access\":[{}]}}",
            now + LIFETIME,
            now - 10,
            access.join(",")
        );
        let mut token = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.sign(number, &token);
        let _never_fails = write!(token, ".{}", URL_SAFE_NO_PAD.encode(signature));
        format!("{{\"token\":\"{token}\",\"expires_in\":{LIFETIME}}}")
    }

    fn sign(&self, number: usize, text: &str) -> Vec<u8> {
        let file = self.dir.join(format!("token-{number}"));
        fs::write(&file, text).expect("what is to be signed");
        let mut command = Command::new(&self.openssl);
        command.args(["dgst", "-sha256", "-sign"]).arg(&self.key);
        run(command.arg(file))
    }
}

/// Replaces each `%XX` with the byte that it stands for.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
