//! Layers with tables of contents in OCI layouts, and in archives of layouts.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun::unstable::cache::Digest;
use forerun_testkit::indexed::IndexedArchive;
use forerun_testkit::ztoc::SociLayer;
use serde_json::{Value, json};

use super::{Stored, annotations_of, forms};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

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
        // A byte of another file is wrong, but no byte that is read. Reading the whole layer would
        // fail.
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

/// Writes an OCI image layout of layers with SOCI tables: in an index that the manifest names
/// (`v2`), or one that refers to the manifest (`v1`).
fn write_soci_layout(dir: &Path, version: &str, layers: &[SociLayer]) {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8], kind: &str| {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({"mediaType": kind, "digest": digest.to_string(), "size": bytes.len()})
    };
    let (mut described, mut tables) = (Vec::new(), Vec::new());
    for layer in layers {
        let of = blob(&layer.blob, GZIP);
        let mut table = blob(&layer.ztoc.encode(), "application/octet-stream");
        table["annotations"] = json!({"com.amazon.soci.image-layer-digest": of["digest"]});
        described.push(of);
        tables.push(table);
    }
    let kind = format!("application/vnd.amazon.soci.index.{version}+json");
    let config = blob(b"{}", "application/vnd.oci.image.config.v1+json");
    let mut manifest = json!({"schemaVersion": 2, "config": config, "layers": described});
    let mut index = json!({
        "schemaVersion": 2, "artifactType": kind, "config": blob(b"{}", &kind), "layers": tables,
    });
    let stored = |document: &Value| blob(document.to_string().as_bytes(), MANIFEST);
    let (mut image, mut tables);
    if version == "v2" {
        tables = stored(&index);
        manifest["annotations"] = json!({"com.amazon.soci.index-digest": tables["digest"]});
        image = stored(&manifest);
    } else {
        image = stored(&manifest);
        index["subject"] = image.clone();
        tables = stored(&index);
    }
    image["annotations"] = json!({"org.opencontainers.image.ref.name": "app"});
    tables["artifactType"] = json!(kind);
    let index = json!({"schemaVersion": 2, "manifests": [tables, image]}).to_string();
    fs::write(dir.join("index.json"), index).unwrap();
    fs::write(
        dir.join("oci-layout"),
        "{\"imageLayoutVersion\": \"1.0.0\"}",
    )
    .unwrap();
}

#[test]
fn layers_on_disk_are_read_by_their_tables_of_soci() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let place = &stored.place;
    let plain = stored.plain.iter();
    let good: Vec<_> = plain.map(|plain| SociLayer::new(plain, 400_000)).collect();
    let described = |arguments: &[&str]| {
        let info = place.run(&[&["info", "--json"], arguments].concat());
        let info = info.ok().json();
        info["details"]["lowest first"].as_str().unwrap().to_owned()
    };
    for (version, leave, how) in [
        ("v2", &[][..], "each part verified by its table of contents"),
        (
            "v1",
            &["--referrers"],
            "each part compared with an index that forerun did not make",
        ),
    ] {
        write_soci_layout(&place.path(version), version, &good);
        let packed = Command::new("tar")
            .args(["-C", version, "-cf", &format!("{version}.tar"), "."])
            .current_dir(place.path("."))
            .status();
        assert!(packed.unwrap().success());
        for name in [
            format!("oci-layout:{version}:app"),
            format!("oci-archive:{version}.tar:app"),
        ] {
            let of = [leave, &[&*name]].concat();
            let same = place.run(&[&["diff"], &*of, &["unpacked/rootfs"]].concat());
            assert_eq!((same.code, same.text()), (Some(0), ""), "{name}");
            let described = described(&of);
            assert_eq!(described.matches(how).count(), 2, "{described}");
        }
        // A byte of another file is wrong. The layer was neither hashed nor decoded, and the wrong
        // byte is not served.
        let mut altered = good[0].blob.clone();
        let middle = altered.len() / 2;
        altered[middle] ^= 4;
        let digest = Digest::of(&good[0].blob);
        let blob = place.path(version).join("blobs/sha256").join(digest.hex());
        fs::write(&blob, &altered).unwrap();
        let name = format!("oci-layout:{version}:app");
        let of = [leave, &[&*name]].concat();
        let read = place.run(&[&["cat"], &*of, &["/etc/passwd"]].concat());
        assert_eq!(read.ok().text(), "app\n", "{version}");
        let checked = place.run(&[&["check"], &*of].concat());
        let said = format!("{}{}", checked.text(), checked.stderr);
        assert_ne!(checked.code, Some(0), "{said}");
        assert!(said.contains(&format!("layer {digest}")), "{said}");
        fs::write(&blob, &good[0].blob).unwrap();
    }
    // An index that only refers to the image is used with the option, but never with
    // `--require-verified`.
    for arguments in [
        &["oci-layout:v1:app"][..],
        &["--referrers", "--require-verified", "oci-layout:v1:app"],
    ] {
        let described = described(arguments);
        assert_eq!(
            described.matches("verified as a whole").count(),
            2,
            "{described}"
        );
    }
    // An index that was made later takes precedence.
    assert!(described(&["--referrers", "oci-layout:v1:app"]).contains("verified as a whole"));
}

#[test]
fn tables_of_soci_on_disk_that_lie_or_lack_are_not_served() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let place = &stored.place;
    let plain = stored.plain.iter();
    let good: Vec<_> = plain.map(|plain| SociLayer::new(plain, 400_000)).collect();
    let mut climbs = good.clone();
    climbs[0].ztoc.metadata[1].name = b"../up".to_vec();
    write_soci_layout(&place.path("v1"), "v1", &climbs);
    let same = place.run(&[
        "diff",
        "--referrers",
        "oci-layout:v1:app",
        "unpacked/rootfs",
    ]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
    write_soci_layout(&place.path("v2"), "v2", &climbs);
    let refused = place.run(&["ls", "oci-layout:v2:app"]);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("table of contents"),
        "{}",
        refused.stderr
    );
    // If an image was copied without its tables or their index, as programs do that copy one
    // platform, it is read as a whole.
    write_soci_layout(&place.path("copied"), "v2", &good);
    let index = fs::read(place.path("copied/index.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let of_index = digest.trim_start_matches("sha256:").to_owned();
    for lacking in [Digest::of(&good[0].ztoc.encode()).hex(), of_index] {
        fs::remove_file(place.path("copied/blobs/sha256").join(lacking)).unwrap();
        let same = place.run(&["diff", "oci-layout:copied:app", "unpacked/rootfs"]);
        assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
        assert!(
            same.stderr.contains("SOCI is not used") || same.stderr.contains("names is not used"),
            "{}",
            same.stderr
        );
    }
}
