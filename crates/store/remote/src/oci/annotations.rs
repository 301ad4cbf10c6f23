//! Tables of contents whose digests are in manifests: the annotations of layers.

use serde::Deserialize;

use crate::LayerContents;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RawAnnotations {
    /// The name of an image in a layout on disk.
    #[serde(rename = "org.opencontainers.image.ref.name")]
    pub name: Option<String>,
    #[serde(rename = "org.opencontainers.image.created")]
    pub created: Option<String>,
    #[serde(rename = "containerd.io/snapshot/stargz/toc.digest")]
    estargz_digest: Option<String>,
    #[serde(rename = "io.github.containers.zstd-chunked.manifest-checksum")]
    chunked_digest: Option<String>,
    #[serde(rename = "io.github.containers.zstd-chunked.manifest-position")]
    chunked_position: Option<String>,
    /// The same annotations under names that older programs use.
    #[serde(rename = "io.containers.zstd-chunked.manifest-checksum")]
    old_digest: Option<String>,
    #[serde(rename = "io.containers.zstd-chunked.manifest-position")]
    old_position: Option<String>,
}

impl RawAnnotations {
    /// Returns the table of contents of a layer of `media_type`. Returns `None` if the annotations
    /// name no table of a known form; such a layer is used only as a whole.
    pub fn contents(&self, media_type: &str) -> Option<LayerContents> {
        if media_type.ends_with("+zstd") {
            return self.chunked();
        }
        let is_gzip = media_type.ends_with("+gzip") || media_type.ends_with(".tar.gzip");
        let digest = self.estargz_digest.as_deref().filter(|_| is_gzip)?;
        let digest = digest.parse().ok()?;
        Some(LayerContents::EStargz { digest })
    }

    fn chunked(&self) -> Option<LayerContents> {
        /// The table type whose entries are those of eStargz.
        const TABLE: u64 = 1;
        let digest = self.chunked_digest.as_ref().or(self.old_digest.as_ref())?;
        let digest = digest.parse().ok()?;
        let position = self.chunked_position.as_ref();
        let position = position.or(self.old_position.as_ref())?;
        let mut numbers = position.split(':').map(|number| {
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse::<u64>().ok().filter(|_| is_number)
        });
        let mut next = || numbers.next().flatten();
        let (offset, len, decoded_len, kind) = (next()?, next()?, next()?, next()?);
        (kind == TABLE && numbers.next().is_none()).then_some(LayerContents::ZstdChunked {
            digest,
            offset,
            len,
            decoded_len,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use forerun_cache::Digest;

    use super::*;

    const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    const DOCKER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

    fn contents(media_type: &str, annotations: &str) -> Option<LayerContents> {
        let digest = Digest::of(b"table").to_string();
        let text = annotations.replace("$D", &digest);
        let raw: RawAnnotations = serde_json::from_str(&text).unwrap();
        raw.contents(media_type)
    }

    #[test]
    fn a_table_of_estargz_has_a_digest() {
        let text = r#"{"containerd.io/snapshot/stargz/toc.digest":"$D","other":"x"}"#;
        let digest = Digest::of(b"table");
        let found = Some(LayerContents::EStargz { digest });
        assert_eq!(contents(GZIP, text), found);
        assert_eq!(contents(DOCKER, text), found);
        assert_eq!(contents(ZSTD, text), None);
        assert_eq!(contents(GZIP, "{}"), None);
        let text = text.replace("$D", "sha512:00");
        assert_eq!(contents(GZIP, &text), None);
    }

    #[test]
    fn a_table_of_zstd_chunked_has_a_digest_and_a_place() {
        let of = |prefix: &str, position: &str| {
            let text = format!(
                r#"{{"{prefix}.zstd-chunked.manifest-checksum":"$D",
                "{prefix}.zstd-chunked.manifest-position":"{position}"}}"#
            );
            contents(ZSTD, &text)
        };
        let found = Some(LayerContents::ZstdChunked {
            digest: Digest::of(b"table"),
            offset: 10,
            len: 20,
            decoded_len: 30,
        });
        assert_eq!(of("io.github.containers", "10:20:30:1"), found);
        assert_eq!(of("io.containers", "10:20:30:1"), found);
        for position in [
            "10:20:30:2",
            "10:20:30",
            "10:20:30:1:5",
            "+10:20:30:1",
            "-1:20:30:1",
            "99999999999999999999:20:30:1",
            "",
            "a:b:c:d",
        ] {
            assert_eq!(of("io.containers", position), None, "{position}");
        }
    }
}
