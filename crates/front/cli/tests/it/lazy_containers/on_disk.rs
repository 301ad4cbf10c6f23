//! Layers with tables of contents in OCI layouts, and in archives of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun::cache::Digest;
use forerun_testkit::indexed::IndexedArchive;
use serde_json::{Value, json};

use super::{Stored, annotations_of, forms};

/// Writes an OCI image layout of layers.
fn write_layout(dir: &Path, layers: &[IndexedArchive]) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8], kind: &str| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({"mediaType": kind, "digest": digest.to_string(), "size": bytes.len()})
    };
    let layers: Vec<Value> = layers
        .iter()
        .map(|layer| {
            let mut entry = blob(&layer.blob, layer.media_type);
            entry["annotations"] = annotations_of(layer);
            entry
        })
        .collect();
    let config = blob(b"{}", "application/vnd.oci.image.config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
    let manifest = blob(
        manifest.as_bytes(),
        "application/vnd.oci.image.manifest.v1+json",
    );
    let index = json!({"schemaVersion": 2, "manifests": [manifest]}).to_string();
    fs::write(dir.join("index.json"), index).unwrap();
    fs::write(
        dir.join("oci-layout"),
        "{\"imageLayoutVersion\": \"1.0.0\"}",
    )
    .unwrap();
}

#[test]
fn layers_on_disk_are_read_by_their_tables() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let place = &stored.place;
    for (tag, make) in forms() {
        let mut layers = stored.indexed(make);
        write_layout(&place.path(tag), &layers);
        let packed = Command::new("tar")
            .args(["-C", tag, "-cf", &format!("{tag}.tar"), "."])
            .current_dir(place.path("."))
            .status();
        assert!(packed.unwrap().success());
        for name in [
            format!("oci-layout:{tag}"),
            format!("oci-archive:{tag}.tar"),
        ] {
            let same = place.run(&["diff", &name, "unpacked/rootfs"]);
            assert_eq!((same.code, same.text()), (Some(0), ""), "{name}");
            let info = place.run(&["info", "--json", &name]).ok().json();
            let described = info["details"]["lowest first"].as_str().unwrap();
            let by_table = described.matches("each part verified by its table of contents");
            assert_eq!(by_table.count(), 2, "{described}");
        }
        // A byte of another file is wrong: of what is read, nothing is. Read as a whole, the layer would be refused.
        let digest = Digest::of(&layers[0].blob);
        let at = layers[0].data_len / 2;
        layers[0].blob[at] ^= 4;
        let blob = place.path(tag).join("blobs/sha256").join(digest.hex());
        fs::write(blob, &layers[0].blob).unwrap();
        let name = format!("oci-layout:{tag}");
        let verified = ["cat", "--require-verified", &name, "/bin/a"];
        assert_eq!(place.run(&verified).ok().stdout.len(), 20_000, "{tag}");
        let checked = place.run(&["check", &name]);
        assert_eq!(checked.code, Some(1), "{tag}: {}", checked.stderr);
        let said = format!("{}{}", checked.text(), checked.stderr);
        assert!(said.contains(&format!("layer {digest}")), "{said}");
    }
}
