//! Documents of artifacts that refer to a manifest.

use forerun_cache::Digest;
use serde::Deserialize;

use crate::oci::manifest::{self, BadDocument, Descriptor, Document};

#[derive(Deserialize)]
struct RawReferrer {
    subject: Option<RawSubject>,
}

#[derive(Deserialize)]
struct RawSubject {
    digest: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BadReferrer {
    #[error("the referrer: {0}")]
    Document(#[from] BadDocument),
    #[error("the referrer is an index")]
    Index,
    #[error("the referrer refers to another manifest")]
    Subject,
}

/// Returns the blobs of an artifact. Fails if the artifact does not refer to the manifest
/// `subject`.
pub fn artifact_of(bytes: &[u8], subject: Digest) -> Result<Vec<Descriptor>, BadReferrer> {
    let Document::Manifest(manifest) = manifest::parse(bytes, None)? else {
        return Err(BadReferrer::Index);
    };
    let raw: RawReferrer =
        serde_json::from_slice(bytes).map_err(|error| BadDocument::json(&error))?;
    let named = raw.subject.and_then(|named| named.digest.parse().ok());
    if named == Some(subject) {
        Ok(manifest.layers)
    } else {
        Err(BadReferrer::Subject)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::super::media;
    use super::*;

    #[test]
    fn an_artifact_must_refer_to_the_manifest() {
        let described = |bytes: &[u8]| {
            let digest = Digest::of(bytes).to_string();
            json!({"mediaType": media::EMPTY, "digest": digest, "size": bytes.len()})
        };
        let document = |subject: Value| {
            let document = json!({
                "schemaVersion": 2, "mediaType": media::OCI_MANIFEST,
                "config": described(b"{}"), "layers": [], "subject": subject,
            });
            serde_json::to_vec(&document).unwrap()
        };
        let of = |subject| artifact_of(&document(subject), Digest::of(b"{}"));
        assert!(of(described(b"{}")).is_ok());
        assert!(matches!(of(Value::Null), Err(BadReferrer::Subject)));
        let other = json!({"digest": Digest::of(b"other").to_string()});
        assert!(matches!(of(other), Err(BadReferrer::Subject)));
    }
}
