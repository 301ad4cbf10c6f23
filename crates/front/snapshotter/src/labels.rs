//! The labels that say which layer of which image a snapshot is to have.

use std::collections::BTreeMap;

/// The name under which the committed snapshot is looked for. containerd's unpacker sets it for each layer.
pub const TARGET: &str = "containerd.io/snapshot.ref";

/// Names of the image and of the layer: by containerd's own handler, which its CRI plugin uses, and by that of the
/// stargz snapshotter, which `ctr-remote` uses.
const NAMES: [(&str, &str); 2] = [
    (
        "containerd.io/snapshot/cri.image-ref",
        "containerd.io/snapshot/cri.layer-digest",
    ),
    (
        "containerd.io/snapshot/remote/stargz.reference",
        "containerd.io/snapshot/remote/stargz.digest",
    ),
];
const MANIFEST: &str = "containerd.io/snapshot/cri.manifest-digest";

/// A layer, by the labels of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLayer {
    /// The name of the committed snapshot.
    pub target: String,
    /// The image: `oci://` and its name, with the digest of the manifest where a label has it.
    pub image: String,
    /// The digest of the layer.
    pub digest: String,
}

impl NamedLayer {
    /// Reads labels. Returns nothing where they name no layer of an image.
    pub fn of(labels: &BTreeMap<String, String>) -> Option<Self> {
        let target = labels.get(TARGET).filter(|target| !target.is_empty())?;
        let (reference, digest) = NAMES
            .iter()
            .find_map(|(image, layer)| Some((labels.get(*image)?, labels.get(*layer)?)))?;
        let image = match labels.get(MANIFEST) {
            Some(manifest) => by_digest(reference, manifest),
            None => format!("oci://{reference}"),
        };
        Some(Self {
            target: target.clone(),
            image,
            digest: digest.clone(),
        })
    }
}

/// Returns the name of an image with the digest of a manifest in the place of its tag or digest.
pub fn by_digest(reference: &str, digest: &str) -> String {
    format!("{}@{digest}", repository_of(reference))
}

/// Returns the name of an image without tag and digest.
pub fn repository_of(reference: &str) -> String {
    let name = reference.strip_prefix("oci://").unwrap_or(reference);
    let name = name.split('@').next().unwrap_or(name);
    let path = name.rfind('/').map_or(0, |slash| slash + 1);
    // A colon before the last slash is that of a port.
    let tag = name[path..].find(':').map(|colon| path + colon);
    let name = tag.map_or(name, |tag| &name[..tag]);
    format!("oci://{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn both_kinds_of_labels_name_a_layer() {
        let of = |image: &str| {
            Some(NamedLayer {
                target: "sha256:chain".to_owned(),
                image: image.to_owned(),
                digest: "sha256:layer".to_owned(),
            })
        };
        let cri = [
            (TARGET, "sha256:chain"),
            (NAMES[0].0, "h:5000/a/b:1"),
            (NAMES[0].1, "sha256:layer"),
        ];
        assert_eq!(NamedLayer::of(&labels(&cri)), of("oci://h:5000/a/b:1"));
        let pinned = [&cri[..], &[(MANIFEST, "sha256:m")]].concat();
        assert_eq!(
            NamedLayer::of(&labels(&pinned)),
            of("oci://h:5000/a/b@sha256:m")
        );
        let stargz = [
            (TARGET, "sha256:chain"),
            (NAMES[1].0, "h/a@sha256:x"),
            (NAMES[1].1, "sha256:layer"),
        ];
        assert_eq!(NamedLayer::of(&labels(&stargz)), of("oci://h/a@sha256:x"));
        for lacking in 0..3 {
            let mut some = cri.to_vec();
            some.remove(lacking);
            assert_eq!(NamedLayer::of(&labels(&some)), None);
        }
    }

    #[test]
    fn a_digest_takes_the_place_of_a_tag() {
        for (reference, expected) in [
            ("h:5000/a/b", "oci://h:5000/a/b@D"),
            ("h:5000/a/b:1.0", "oci://h:5000/a/b@D"),
            ("h/a:1@sha256:00", "oci://h/a@D"),
            ("oci://h/a:1", "oci://h/a@D"),
            ("\u{e9}:", "oci://\u{e9}@D"),
            ("", "oci://@D"),
        ] {
            assert_eq!(by_digest(reference, "D"), expected);
        }
    }
}
