//! An S3-compatible server: s3s-fs, which stores objects as files and checks signatures.
//!
//! Debian has no package of it: `cargo xtask packages` builds the pinned version into
//! `target/tools`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::loopback;
use crate::process::Server;
use forerun_testkit::{TempDir, require, temp_dir, workspace_root};

const BUCKET: &str = "images";
const ACCESS_KEY: &str = "FORERUNTESTKEY";
const SECRET_KEY: &str = "forerun/test/secret";
const REGION: &str = "us-east-1";

#[derive(Debug)]
pub struct S3Server {
    server: Server,
    dir: TempDir,
}

impl S3Server {
    /// Starts a server with an empty bucket.
    pub fn start() -> Option<Self> {
        let program = program();
        let what = "s3s-fs, which `cargo xtask packages` installs";
        if !require::that(program.is_file(), what) || !loopback() {
            return None;
        }
        let dir = temp_dir("s3");
        let root = root(dir.path());
        fs::create_dir_all(root.join(BUCKET)).expect("a directory for the bucket");
        let server = Server::start(dir.path(), "/", |port| {
            let mut command = Command::new(&program);
            command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
            command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]);
            command.arg(&root).env("RUST_LOG", "error");
            command
        });
        Some(Self { server, dir })
    }

    /// Returns `http://127.0.0.1:PORT`. Buckets are the first part of the path.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    pub const fn bucket(&self) -> &'static str {
        BUCKET
    }

    pub const fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    pub const fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    pub const fn region(&self) -> &'static str {
        REGION
    }

    /// Returns the variables that pass all settings to clients.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_string()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_string()),
            ("AWS_REGION", REGION.to_string()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
        ]
    }

    /// Creates or replaces an object.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        let path = root(self.dir.path()).join(BUCKET).join(key);
        let parent = path.parent().expect("a bucket is above it");
        fs::create_dir_all(parent).expect("the directory of the object");
        fs::write(path, bytes).expect("the object is written");
    }
}

fn root(dir: &Path) -> PathBuf {
    dir.join("buckets")
}

fn program() -> PathBuf {
    workspace_root().join("target/tools/bin/s3s-fs")
}
