//! Advice on names without a file: names of remote images, as other programs spell them.

use std::path::Path;

use crate::error::Failure;
use crate::remote;

/// Returns advice on a name without a file, if it may be the name of a remote image.
pub fn advice(name: &Path) -> Option<String> {
    let text = name.to_str()?;
    if let Some(rest) = text.strip_prefix("docker://") {
        return in_registry(rest);
    }
    if let Some(rest) = text.strip_prefix("oci:") {
        return Some(format!("an OCI layout on disk is oci-layout:{rest}"));
    }
    if let Some((prefix, rest)) = text.split_once(':')
        && ["docker-daemon", "containers-storage"].contains(&prefix)
    {
        return Some(format!(
            "copy it first: skopeo copy {text} oci:DIR; then open oci-layout:DIR ({rest})"
        ));
    }
    if text.contains("://") {
        let advice = "addresses of images begin with https://, http://, s3:// or oci://";
        return Some(advice.to_string());
    }
    let (host, _) = text.split_once('/')?;
    let is_host = is_host(host) && !Path::new(host).exists();
    is_host.then(|| in_registry(text)).flatten()
}

/// Returns the failure for a name that is not the name of a remote image.
pub fn not_at_server(name: &Path) -> Failure {
    let hint = advice(name).unwrap_or_else(|| {
        "give an address such as oci://HOST/NAME:TAG, s3://BUCKET/KEY or https://HOST/PATH"
            .to_string()
    });
    Failure::usage("not the address of an image at a server")
        .hint(hint)
        .of(name.display())
}

/// Returns the image's name in a registry. The default registry is Docker's.
pub fn in_registry(name: &str) -> Option<String> {
    let name = match name.split_once('/') {
        Some((host, _)) if is_host(host) => format!("oci://{name}"),
        _ => format!("oci://docker.io/{name}"),
    };
    if !cfg!(feature = "network") {
        return Some("images in registries need the full forerun".to_string());
    }
    remote::reference(Path::new(&name)).ok()?;
    Some(format!("an image in a registry is named {name}"))
}

/// Returns whether the first part of a name is a server, by the rules for names of container
/// images.
fn is_host(part: &str) -> bool {
    let is_relative = matches!(part, "" | "." | "..");
    !is_relative && (part.contains(['.', ':']) || part == "localhost")
}

#[cfg(all(test, feature = "network"))]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_programs_lead_to_ours() {
        for (name, expected) in [
            (
                "docker://alpine",
                Some("an image in a registry is named oci://docker.io/alpine"),
            ),
            (
                "docker://h.example/a/b:1",
                Some("an image in a registry is named oci://h.example/a/b:1"),
            ),
            (
                "quay.io/a/b",
                Some("an image in a registry is named oci://quay.io/a/b"),
            ),
            (
                "localhost:5000/a",
                Some("an image in a registry is named oci://localhost:5000/a"),
            ),
            (
                "oci:dir:v1",
                Some("an OCI layout on disk is oci-layout:dir:v1"),
            ),
            (
                "ftp://h/x",
                Some("addresses of images begin with https://, http://, s3:// or oci://"),
            ),
            ("a.img", None),
            ("dir/a.img", None),
            ("./h.example/a", None),
            ("../a.img", None),
            ("/a.b/c", None),
        ] {
            assert_eq!(advice(Path::new(name)).as_deref(), expected, "{name}");
        }
    }
}
