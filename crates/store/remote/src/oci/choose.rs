//! Chooses a manifest from an index.

use crate::oci::manifest::{Entry, shown};
use crate::oci::media;
use crate::oci::platform::Platform;

const MAX_NAMED: usize = 12;

/// Returns the entry to open: the one for `platform`, if the caller names a platform; otherwise an
/// image in forerun's own form, the entry for this machine, or the only entry. The error explains
/// why there is none.
pub fn choose<'e>(entries: &'e [Entry], platform: Option<&Platform>) -> Result<&'e Entry, String> {
    // A SOCI index has the same platform as its image.
    let images = || {
        let is_image = |entry: &&Entry| entry.artifact_type.as_deref() != Some(media::SOCI_V2);
        entries.iter().filter(is_image)
    };
    if let Some(platform) = platform {
        let named = images().filter(|entry| {
            let of_entry = entry.platform.as_ref();
            of_entry.is_some_and(|of_entry| platform.is(of_entry))
        });
        return match *named.collect::<Vec<_>>() {
            [only] => Ok(only),
            ref fitting => Err(reason(entries, fitting, &platform.to_string())),
        };
    }
    let ours: Vec<&Entry> = images()
        .filter(|entry| entry.artifact_type.as_deref() == Some(media::ARTIFACT))
        .collect();
    let among = if ours.is_empty() {
        images().collect()
    } else {
        ours
    };
    if let [only] = *among {
        return Ok(only);
    }
    let here: Vec<&Entry> = among
        .iter()
        .copied()
        .filter(|entry| {
            let platform = entry.platform.as_ref();
            platform.is_some_and(|it| it.os == "linux" && it.architecture == architecture())
        })
        .collect();
    match *here {
        [only] => Ok(only),
        ref fitting => Err(reason(entries, fitting, "this machine")),
    }
}

/// Returns the OCI (and Go) name of this machine's architecture.
const fn architecture() -> &'static str {
    match std::env::consts::ARCH.as_bytes() {
        b"x86_64" => "amd64",
        b"aarch64" => "arm64",
        b"x86" => "386",
        _ => std::env::consts::ARCH,
    }
}

/// Explains why none of `entries` was chosen: several or none of them are in `fitting`.
fn reason(entries: &[Entry], fitting: &[&Entry], wanted: &str) -> String {
    if entries.is_empty() {
        return "this is an index without manifests".to_string();
    }
    let (count, listed) = match fitting.len() {
        0 => ("none".to_string(), entries.iter().collect()),
        count => (count.to_string(), fitting.to_vec()),
    };
    let named: Vec<String> = listed
        .iter()
        .take(MAX_NAMED)
        .map(|entry| {
            let kind = match (&entry.platform, &entry.artifact_type) {
                (Some(platform), _) => shown(&platform.to_string()),
                (None, Some(artifact)) => shown(artifact),
                (None, None) => shown(&entry.descriptor.media_type),
            };
            format!("{kind} {}", entry.descriptor.digest)
        })
        .collect();
    let more = if listed.len() > MAX_NAMED {
        ", ..."
    } else {
        ""
    };
    format!(
        "this is an index of {} manifests, {count} of them for {wanted}; give the digest of one: \
         {}{more}",
        entries.len(),
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::oci::manifest::Descriptor;
    use forerun_cache::Digest;

    fn entry(name: &str, artifact: Option<&str>, platform: Option<(&str, &str)>) -> Entry {
        Entry {
            descriptor: Descriptor {
                media_type: media::OCI_MANIFEST.to_string(),
                digest: Digest::of(name.as_bytes()),
                len: 1,
                contents: None,
            },
            artifact_type: artifact.map(ToString::to_string),
            name: None,
            created: None,
            platform: platform.map(|(os, arch)| format!("{os}/{arch}").parse().unwrap()),
        }
    }

    #[test]
    fn ours_before_this_machines_before_the_only_one() {
        let here = Some(("linux", architecture()));
        let elsewhere = Some(("linux", "s390x"));
        let unknown = Some(("unknown", "unknown"));
        let a = |artifact, platform| entry("a", artifact, platform);
        let b = |artifact, platform| entry("b", artifact, platform);
        let wanted = Digest::of(b"a");
        let ours = Some(media::ARTIFACT);
        let soci = Some(media::SOCI_V2);
        for (entries, found) in [
            (vec![b(soci, here), a(None, here)], true),
            (vec![b(soci, None)], false),
            (vec![], false),
            (vec![a(None, None)], true),
            (vec![a(None, here), b(None, elsewhere)], true),
            (vec![b(None, unknown), a(None, here)], true),
            (vec![b(None, here), a(ours, None)], true),
            (vec![b(ours, elsewhere), a(ours, here)], true),
            (vec![b(ours, None), a(ours, None)], false),
            (vec![b(None, here), a(None, here)], false),
            (vec![b(None, elsewhere), a(None, unknown)], false),
        ] {
            let chosen = choose(&entries, None).map(|entry| entry.descriptor.digest);
            assert_eq!(chosen.clone().ok(), found.then_some(wanted), "{entries:?}");
            if let Err(reason) = chosen {
                assert!(
                    entries
                        .iter()
                        .all(|e| reason.contains(&e.descriptor.digest.hex()))
                );
            }
        }
    }

    #[test]
    fn a_platform_of_the_callers_comes_before_all() {
        let entries = [
            entry("a", None, Some(("linux", architecture()))),
            entry("b", None, Some(("linux", "arm"))),
            entry("c", Some(media::ARTIFACT), None),
        ];
        let chosen = |platform: &str| {
            let platform = platform.parse().unwrap();
            choose(&entries, Some(&platform)).map(|entry| entry.descriptor.digest)
        };
        assert_eq!(chosen("linux/arm"), Ok(Digest::of(b"b")));
        let refused = chosen("windows/amd64").unwrap_err();
        assert!(
            refused.contains("none of them for windows/amd64"),
            "{refused}"
        );
        assert!(chosen("linux/arm/v7").is_err());
    }
}
