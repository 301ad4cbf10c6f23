//! Credential helpers: `docker-credential-NAME get`.
//!
//! The program reads a server's address and writes JSON with user and secret. Its time limit is ten
//! seconds, its output limit 64 KiB. The output is never shown, because it may contain the secret.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use forerun_sys::threads;
use serde::Deserialize;

use crate::credentials::docker_config::Credentials;
use crate::credentials::secret::Secret;

/// Time limit of a helper, which may ask the user for a password.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);
/// Output limit of a helper, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;
/// User name by which a helper marks the secret as a refresh token.
const TOKEN_USER: &str = "<token>";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Asks the helper `name` for the credentials of `server`. Returns `None` if it fails.
pub fn ask(name: &str, server: &str) -> Option<Credentials> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || !name.bytes().all(plain) {
        tracing::warn!("the configuration names a credential helper that is not valid");
        return None;
    }
    let program = format!("docker-credential-{name}");
    match run(&program, server, HELPER_TIMEOUT) {
        Ok(answer) => understand(&answer),
        Err(error) => {
            tracing::warn!(program, %error, "the credential helper returned no credentials");
            None
        }
    }
}

fn understand(answer: &[u8]) -> Option<Credentials> {
    let HelperAnswer { username, secret } = serde_json::from_slice(answer).ok()?;
    if secret.is_empty() {
        return None;
    }
    Some(match &*username {
        TOKEN_USER => Credentials::Identity(Secret(secret)),
        _ => Credentials::Password {
            user: username,
            password: Secret(secret),
        },
    })
}

/// Runs `program get`, writes `input` to it, and returns its output if it succeeds in time.
fn run(program: &str, input: &str, patience: Duration) -> std::io::Result<Vec<u8>> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input may still answer.
        let _ = stdin.write_all(input.as_bytes());
    }
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        let started = threads::spawn("helper-answer", move || {
            let mut answer = Vec::new();
            let read = stdout.take(MAX_ANSWER).read_to_end(&mut answer);
            // The receiver is gone after the timeout.
            let _ = sender.send(read.map(|_| answer));
        });
        if let Err(error) = started {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
    }
    let answer = receiver.recv_timeout(patience);
    let status = match answer {
        Ok(_) => end_of(&mut child)?,
        Err(_) => None,
    };
    let Some(status) = status else {
        child.kill()?;
        child.wait()?;
        return Err(std::io::ErrorKind::TimedOut.into());
    };
    match answer {
        Ok(answer) if status.success() => answer,
        _ => Err(std::io::Error::other(format!("it ended with {status}"))),
    }
}

/// Returns the exit status of a program that has closed its output, or `None` if it does not exit
/// within a second.
fn end_of(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    for _ in 0..100 {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn script(body: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docker-credential-test");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let path = path.to_str().unwrap().to_string();
        (dir, path)
    }

    #[test]
    fn programs_answer_or_are_given_up() {
        let answers = r#"read server; [ "$1" = get ] && echo "{\"ServerURL\":\"x\",\"Username\":\"u\",\"Secret\":\"$server\"}""#;
        let (_dir, program) = script(answers);
        let answer = run(&program, "host:5000", HELPER_TIMEOUT).unwrap();
        assert_eq!(
            understand(&answer),
            Some(Credentials::Password {
                user: "u".into(),
                password: Secret("host:5000".into())
            })
        );
        let (_dir, program) = script("echo credentials not found; exit 1");
        assert!(run(&program, "h", HELPER_TIMEOUT).is_err());
        let (_dir, program) = script("exec >&-; exec sleep 100");
        assert!(run(&program, "h", HELPER_TIMEOUT).is_err());
        let (_dir, program) = script("exec sleep 100");
        let error = run(&program, "h", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        let token = br#"{"Username":"<token>","Secret":"t"}"#;
        assert_eq!(
            understand(token),
            Some(Credentials::Identity(Secret("t".into())))
        );
        for bad in ["", "a/b", "../x", "a b"] {
            assert_eq!(ask(bad, "h"), None);
        }
    }
}
