//! Media types: forerun's own, those of manifests, and the kinds of layers.

/// Artifact type of an image that forerun pushed.
pub const ARTIFACT: &str = "application/vnd.forerun.image.v1";
pub const CONFIG: &str = "application/vnd.forerun.config.v1+json";
pub const TABLE: &str = "application/vnd.forerun.table.v1";
/// A slice of an image.
pub const PART: &str = "application/vnd.forerun.part.v1";

/// Artifact type of indexes and access lists beside a container image.
pub const INDEX: &str = "application/vnd.forerun.index.v1";
/// Layer indexes, in the file format of `forerun index`.
pub const LAYER_INDEXES: &str = "application/vnd.forerun.layer-indexes.v1";
pub const ACCESS_LISTS: &str = "application/vnd.forerun.access-lists.v1";
/// A SOCI index that is a separate artifact and refers to a container image.
pub const SOCI_V1: &str = "application/vnd.amazon.soci.index.v1+json";
/// A SOCI index that is listed with a container image and is named by the image's manifest.
pub const SOCI_V2: &str = "application/vnd.amazon.soci.index.v2+json";
/// Placeholder for the configuration of an artifact without one.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's form of an index.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Possibly a plain image; the bytes decide.
    Image,
    /// A tar archive, possibly compressed.
    Tar,
    /// Compressed or encrypted as a whole, so that no part can be read alone.
    Wrapped,
}

pub fn layer(media_type: &str) -> Layer {
    let (plain, suffix) = media_type.split_once('+').unwrap_or((media_type, ""));
    if plain.ends_with(".tar") || plain.contains(".tar.") || suffix.split('+').any(|s| s == "tar") {
        return Layer::Tar;
    }
    // The suffix of a squashfs layer names its own compression.
    let own = ["squashfs", "erofs"]
        .iter()
        .any(|name| plain.contains(name));
    let wrapped = suffix
        .split('+')
        .any(|suffix| matches!(suffix, "gzip" | "zstd" | "xz" | "bzip2" | "encrypted"));
    if wrapped && !own || suffix.contains("encrypted") {
        Layer::Wrapped
    } else {
        Layer::Image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_by_their_type() {
        for (media_type, expected) in [
            ("application/vnd.sylabs.sif.layer.v1.sif", Layer::Image),
            (
                "application/vnd.stacker.image.layer.squashfs+zstd+verity",
                Layer::Image,
            ),
            ("application/vnd.erofs.layer.v1", Layer::Image),
            ("application/octet-stream", Layer::Image),
            ("application/vnd.oci.image.layer.v1.tar", Layer::Tar),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Layer::Tar),
            (
                "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
                Layer::Tar,
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                Layer::Tar,
            ),
            (
                "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                Layer::Tar,
            ),
            ("application/x.ext4+gzip", Layer::Wrapped),
            ("application/x.erofs+encrypted", Layer::Wrapped),
        ] {
            assert_eq!(layer(media_type), expected, "{media_type}");
        }
    }
}
