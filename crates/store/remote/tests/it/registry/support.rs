//! Helpers that the tests of registries share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forerun_io::MemorySource;
use forerun_remote::push::{PushOptions, Pushed, push};
use forerun_remote::{ImageName, Registry, RegistryOptions};
use forerun_remote::{Layout, Result, client, runtime};
use forerun_testkit_servers::{PASSWORD, USER};
use futures_util::StreamExt as _;

pub const CHUNK: u32 = 4096;
pub const PART: u64 = 64 << 10;

/// Returns options that read no file of the user and do not wait long.
pub fn options() -> RegistryOptions {
    RegistryOptions {
        auth_files: Some(Vec::new()),
        timeout: crate::support::PATIENT,
        backoff: Duration::from_millis(1),
        ..RegistryOptions::default()
    }
}

pub fn registry(options: RegistryOptions) -> Arc<Registry> {
    let client = client::build(&client::ClientOptions::default()).unwrap();
    Registry::new(client, options)
}

pub fn name(authority: &str, rest: &str) -> ImageName {
    format!("oci://{authority}/{rest}").parse().unwrap()
}

/// Returns `len` bytes that do not repeat, except for a run of zeros, longer than a part, in the
/// middle.
pub fn image(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut bytes: Vec<u8> = (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect();
    let zeros = len / 2..(len / 2 + 3 * PART as usize).min(len);
    bytes[zeros].fill(0);
    bytes
}

pub fn push_options() -> PushOptions {
    PushOptions {
        part_len: PART,
        chunk_size: CHUNK,
        ..PushOptions::default()
    }
}

pub fn push_as(registry: &Arc<Registry>, image: &[u8], name: &ImageName) -> Result<Pushed> {
    push(
        registry,
        &MemorySource::new(image),
        name,
        &push_options(),
        &mut |_| (),
    )
}

pub fn open(registry: &Arc<Registry>, name: &ImageName) -> Result<Layout> {
    runtime::wait_for(registry.open(name, false))
}

/// Reads a range of a part from the mirror with index `mirror`.
pub fn read(
    layout: &Layout,
    part: usize,
    mirror: usize,
    range: std::ops::Range<u64>,
) -> Result<Vec<u8>> {
    let blob = &layout.parts[part].blob;
    runtime::wait_for(async {
        let mut body = blob.mirrors[mirror].fetch(range, &blob.description).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    })
}

/// Writes a credentials file for the user of the testkit's servers at `authority`.
pub fn auth_file(dir: &Path, authority: &str, password: &str) -> PathBuf {
    use base64::Engine as _;
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{password}"));
    let path = dir.join("config.json");
    let text = format!(r#"{{"auths":{{"{authority}":{{"auth":"{auth}"}}}}}}"#);
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns options with the right credentials for `authority`.
pub fn logged_in(dir: &Path, authority: &str) -> RegistryOptions {
    RegistryOptions {
        auth_files: Some(vec![auth_file(dir, authority, PASSWORD)]),
        ..options()
    }
}
