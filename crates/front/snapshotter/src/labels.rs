//! Snapshot labels that name an image and its layer.

use std::collections::BTreeMap;

/// Name of the committed snapshot to look for. containerd's unpacker sets it for each layer.
pub const TARGET: &str = "containerd.io/snapshot.ref";

/// A family of labels that name the image and the layer.
///
/// containerd also turns annotations, written by an image's author, into labels. A client
/// overwrites only the labels of its own family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelFamily {
    /// Labels set by containerd's own handler, which its CRI plugin uses.
    Cri,
    /// Labels of the stargz snapshotter, which `ctr-remote` uses.
    Stargz,
}

impl LabelFamily {
    const ALL: [Self; 2] = [Self::Cri, Self::Stargz];

    const fn image(self) -> &'static str {
        match self {
            Self::Cri => "containerd.io/snapshot/cri.image-ref",
            Self::Stargz => "containerd.io/snapshot/remote/stargz.reference",
        }
    }

    const fn layer(self) -> &'static str {
        match self {
            Self::Cri => "containerd.io/snapshot/cri.layer-digest",
            Self::Stargz => "containerd.io/snapshot/remote/stargz.digest",
        }
    }
}

/// The manifest digest, only in the CRI family.
const MANIFEST: &str = "containerd.io/snapshot/cri.manifest-digest";

/// The layer that a request's labels name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLayer {
    pub target: String,
    /// `oci://` and the image's name, by manifest digest if a label has it.
    pub image: String,
    pub digest: String,
}

impl NamedLayer {
    /// Reads the labels of `family`, or of all families. Returns `None` if they name no layer.
    ///
    /// # Errors
    /// The reason, if two families name different images or layers: one of them is not from the
    /// client.
    pub fn of(
        labels: &BTreeMap<String, String>,
        family: Option<LabelFamily>,
    ) -> Result<Option<Self>, &'static str> {
        let Some(target) = labels.get(TARGET).filter(|target| !target.is_empty()) else {
            return Ok(None);
        };
        let families = LabelFamily::ALL.into_iter();
        let families: Vec<_> = families
            .filter(|it| family.is_none_or(|family| family == *it))
            .collect();
        let is_one = |name: fn(LabelFamily) -> &'static str| {
            let mut values = families
                .iter()
                .filter_map(|family| labels.get(name(*family)));
            let first = values.next();
            values.all(|value| Some(value) == first)
        };
        if !is_one(LabelFamily::image) || !is_one(LabelFamily::layer) {
            return Err("its labels name two images, and one of them may be the author's choice");
        }
        let named = families.into_iter().find_map(|family| {
            let reference = labels.get(family.image())?;
            let digest = labels.get(family.layer())?;
            let manifest = labels.get(MANIFEST);
            let manifest = manifest.filter(|_| family == LabelFamily::Cri);
            Some(Self {
                target: target.clone(),
                image: match manifest {
                    Some(manifest) => by_digest(reference, manifest),
                    None => format!("oci://{reference}"),
                },
                digest: digest.clone(),
            })
        });
        Ok(named)
    }
}

/// Replaces the tag or digest of an image name with the manifest digest `digest`.
pub fn by_digest(reference: &str, digest: &str) -> String {
    format!("{}@{digest}", repository_of(reference))
}

/// Returns an image name without tag and digest.
pub fn repository_of(reference: &str) -> String {
    let name = reference.strip_prefix("oci://").unwrap_or(reference);
    let name = name.split('@').next().unwrap_or(name);
    let path = name.rfind('/').map_or(0, |slash| slash + 1);
    // A colon before the last slash introduces a port.
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

    fn named(image: &str) -> Option<NamedLayer> {
        Some(NamedLayer {
            target: "sha256:chain".to_owned(),
            image: image.to_owned(),
            digest: "sha256:layer".to_owned(),
        })
    }

    fn of_family(family: LabelFamily, image: &'static str) -> [(&'static str, &'static str); 3] {
        [
            (TARGET, "sha256:chain"),
            (family.image(), image),
            (family.layer(), "sha256:layer"),
        ]
    }

    #[test]
    fn both_kinds_of_labels_name_a_layer() {
        let of = |pairs: &[(&str, &str)]| NamedLayer::of(&labels(pairs), None);
        let cri = of_family(LabelFamily::Cri, "h:5000/a/b:1");
        assert_eq!(of(&cri), Ok(named("oci://h:5000/a/b:1")));
        let pinned = [&cri[..], &[(MANIFEST, "sha256:m")]].concat();
        assert_eq!(of(&pinned), Ok(named("oci://h:5000/a/b@sha256:m")));
        let stargz = of_family(LabelFamily::Stargz, "h/a@sha256:x");
        assert_eq!(of(&stargz), Ok(named("oci://h/a@sha256:x")));
        for lacking in 0..3 {
            let mut some = cri.to_vec();
            some.remove(lacking);
            assert_eq!(of(&some), Ok(None));
        }
    }

    #[test]
    fn labels_that_disagree_name_no_layer_and_one_family_is_taken_alone() {
        let theirs = of_family(LabelFamily::Stargz, "h/own:1");
        let authors = of_family(LabelFamily::Cri, "private/app:1");
        let both = labels(&[&theirs[..], &authors[..]].concat());
        assert!(NamedLayer::of(&both, None).is_err());
        for (family, image) in [
            (LabelFamily::Stargz, "oci://h/own:1"),
            (LabelFamily::Cri, "oci://private/app:1"),
        ] {
            assert_eq!(NamedLayer::of(&both, Some(family)), Ok(named(image)));
        }
        // One differing label is a conflict, even without the family's other labels.
        let one = labels(&[&theirs[..], &authors[1..2]].concat());
        assert!(NamedLayer::of(&one, None).is_err());
        let another_layer = (LabelFamily::Cri.layer(), "sha256:other");
        let one = labels(&[&theirs[..], &[another_layer]].concat());
        assert!(NamedLayer::of(&one, None).is_err());
        let pinned = labels(&[&theirs[..], &[(MANIFEST, "sha256:m")]].concat());
        assert_eq!(NamedLayer::of(&pinned, None), Ok(named("oci://h/own:1")));
        let agreed = of_family(LabelFamily::Cri, "h/own:1");
        let agreed = labels(&[&theirs[..], &agreed[..]].concat());
        assert_eq!(NamedLayer::of(&agreed, None), Ok(named("oci://h/own:1")));
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
