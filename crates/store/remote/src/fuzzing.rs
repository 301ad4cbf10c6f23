//! Entry points for fuzz targets, and documents to start from. Not for users.
//!
//! These are plain functions over bytes from servers and users, so that the same code runs under a
//! fuzzer and, over mutated seeds, in ordinary tests. They panic only if an invariant is broken.

use forerun_cache::Digest;
use forerun_io::u64_from;
use url::Url;

use crate::ImageIndex;
use crate::address::image_name::ImageName;
use crate::credentials::docker_config;
use crate::http::link;
use crate::oci::artifact::{self, MAX_PARTS};
use crate::oci::manifest::{self, Document};
use crate::oci::{choose, media};
use crate::registry::auth::challenge;
use crate::resolve::facts::{self, Facts, Shape};

/// Returns an image configuration in forerun's form. Its parts are those of [`manifest`].
#[must_use]
pub fn config() -> Vec<u8> {
    let root = Digest::of(b"root");
    format!(
        r#"{{"imageLength":20000,"chunkSize":4096,"verityRoot":"{root}","partLength":8192,"format":"erofs"}}"#
    )
    .into_bytes()
}

#[must_use]
pub fn manifest() -> Vec<u8> {
    let entry = |media_type: &str, len: u64| {
        let digest = Digest::of(&len.to_le_bytes());
        format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{len}}}"#)
    };
    let layers = [
        entry(media::TABLE, 4096),
        entry(media::PART, 8192),
        entry(media::PART, 8192),
        entry(media::PART, 3616),
    ];
    format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","artifactType":"{}","config":{},"layers":[{}]}}"#,
        media::OCI_MANIFEST,
        media::ARTIFACT,
        entry(media::CONFIG, 180),
        layers.join(",")
    )
    .into_bytes()
}

/// Seeds for [`texts`].
pub const TEXTS: [&str; 5] = [
    "oci://localhost:5000/a/b_c:v1@\
     sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    r#"Bearer realm="https://a/b",service="c",scope="repository:a:pull", Basic realm="x""#,
    "//cdn.example/x?y=z",
    r#"</v2/a/tags?n=1>; rel="prev"; title="a, \"b\"", </v2/a/referrers/x?last=y>; rel="next""#,
    r#"{"auths":{"https://h/v1/":{"auth":"YTpi"},"docker.io/library":{"identitytoken":"x"}}}"#,
];

/// Parses `bytes` as a manifest or index and as an image configuration. Returns how many of these
/// parses succeeded.
pub fn documents(bytes: &[u8]) -> usize {
    let mut sound = 0;
    for told in [None, Some(media::OCI_MANIFEST), Some(media::OCI_INDEX)] {
        match manifest::parse(bytes, told) {
            Ok(Document::Manifest(manifest)) => sound += checked(&config(), &manifest),
            Ok(Document::Index(entries)) => {
                let chosen = choose::choose(&entries, None);
                assert!(chosen.is_ok() || chosen.is_err_and(|reason| reason.len() < 8192));
            }
            Err(error) => assert!(error.to_string().len() < 1024),
        }
    }
    if let Ok(Document::Manifest(manifest)) = manifest::parse(&manifest(), None) {
        sound += checked(bytes, &manifest);
    }
    sound
}

fn checked(config: &[u8], manifest: &manifest::Manifest) -> usize {
    match artifact::check(config, manifest) {
        Ok(artifact) => {
            let sum: u64 = artifact.parts.iter().map(|part| part.len).sum();
            assert_eq!(sum, artifact.len);
            assert!(u64_from(artifact.parts.len()) <= MAX_PARTS);
            assert!(artifact.parts.iter().all(|part| part.len > 0));
            1
        }
        Err(error) => {
            assert!(error.to_string().len() < 1024);
            0
        }
    }
}

/// Returns seeds for [`remembered`]: facts about images as the cache stores them.
#[must_use]
pub fn facts() -> [Vec<u8>; 4] {
    facts::examples()
}

/// Parses `bytes` as facts about an image that the cache stored. Returns whether they were valid.
#[must_use]
pub fn remembered(bytes: &[u8]) -> bool {
    match Facts::decode(bytes) {
        Ok(facts) => {
            assert!(facts.identity().is_ok());
            if let Shape::Parts { parts, .. } = &facts.shape {
                let sum: u64 = parts.iter().map(|part| part.len).sum();
                assert_eq!(sum, facts.len);
                assert!(u64_from(parts.len()) <= MAX_PARTS);
            }
            true
        }
        Err(error) => {
            assert!(error.to_string().len() < 1024);
            false
        }
    }
}

/// Parses `bytes` as a file of layer indexes, and as the payload of such a file.
pub fn layer_indexes(bytes: &[u8]) {
    let _refused = ImageIndex::decode(bytes);
    if let Ok(index) = ImageIndex::decode_body(bytes)
        && let Ok(encoded) = index.encode()
    {
        assert_eq!(ImageIndex::decode(&encoded), Ok(index));
    }
}

/// Parses `bytes` as a name, a challenge, links, a redirect and a credential file.
pub fn texts(bytes: &[u8]) {
    docker_config::exercise(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _any = challenge::parse(text);
    assert!(link::next(text).is_none_or(|target| text.contains(target)));
    if let Ok(name) = text.parse::<ImageName>() {
        assert_eq!(name.to_string().parse::<ImageName>().ok(), Some(name));
    }
    if let Ok(from) = Url::parse("https://registry.example/v2/a/blobs/x")
        && let Ok(to) = crate::http::redirect::follow(&from, text)
    {
        assert_eq!(to.scheme(), "https");
    }
}
