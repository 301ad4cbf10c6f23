//! Container images with SOCI indexes: those that the manifest names, and those that refer to it.

use std::fs;
use std::process::Command;

use forerun_testkit::ztoc::SociLayer;

use super::Stored;

/// Stores an image whose layers are `0.blob` and so on, and a SOCI index of their tables `0.ztoc`
/// and so on. The manifest names the index (`v2`, as `soci convert` does), or the index refers to
/// the manifest (`v1`, as `soci push` does; this registry lists no referrers, so the list is under
/// a tag).
const PUSH: &str = r#"
import hashlib, json, sys, urllib.request
base, tag, version, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def send(method, url, data=None, kind='application/octet-stream'):
    request = urllib.request.Request(url, data=data, method=method, headers={'Content-Type': kind})
    return urllib.request.urlopen(request).headers
def blob(data):
    digest = 'sha256:' + hashlib.sha256(data).hexdigest()
    place = send('POST', base + '/blobs/uploads/')['Location']
    send('PUT', place + ('&' if '?' in place else '?') + 'digest=' + digest, data)
    return {'digest': digest, 'size': len(data)}
OCI = 'application/vnd.oci.image.'
def put(document, tag=None):
    data = json.dumps(document).encode()
    digest = 'sha256:' + hashlib.sha256(data).hexdigest()
    send('PUT', base + '/manifests/' + (tag or digest), data, document['mediaType'])
    return {'mediaType': document['mediaType'], 'digest': digest, 'size': len(data)}
gzip = OCI + 'layer.v1.tar+gzip'
layers = [{'mediaType': gzip, **blob(open('%d.blob' % n, 'rb').read())} for n in range(count)]
tables = [{
    'mediaType': 'application/octet-stream', **blob(open('%d.ztoc' % n, 'rb').read()),
    'annotations': {'com.amazon.soci.image-layer-digest': layers[n]['digest'], 'com.amazon.soci.span-size': '65536',
        'com.amazon.soci.image-layer-mediaType': gzip},
} for n in range(count)]
kind = 'application/vnd.amazon.soci.index.' + version + '+json'
empty = blob(b'{}')
manifest = {'schemaVersion': 2, 'mediaType': OCI + 'manifest.v1+json', 'layers': layers,
    'config': {'mediaType': OCI + 'config.v1+json', **empty}}
index = {'schemaVersion': 2, 'mediaType': OCI + 'manifest.v1+json', 'artifactType': kind,
    'config': {'mediaType': kind, **empty}, 'layers': tables}
if version == 'v2':
    found = put(index)
    manifest['annotations'] = {'com.amazon.soci.index-digest': found['digest']}
    platform = {'os': 'linux', 'architecture': sys.argv[5]}
    found = {**found, 'artifactType': kind, 'platform': platform}
    image = {**put(manifest), 'platform': platform, 'annotations': manifest['annotations']}
    put({'schemaVersion': 2, 'mediaType': OCI + 'index.v1+json', 'manifests': [image, found]}, tag)
else:
    image = put(manifest, tag)
    index['subject'] = image
    entry = {**put(index), 'artifactType': kind}
    put({'schemaVersion': 2, 'mediaType': OCI + 'index.v1+json', 'manifests': [entry]}, image['digest'].replace(':', '-'))
"#;

fn made(stored: &Stored) -> Vec<SociLayer> {
    let layers = stored.plain.iter();
    layers.map(|plain| SociLayer::new(plain, 400_000)).collect()
}

/// Pushes layers with an index of this version. Returns the name of the image.
fn push(stored: &Stored, tag: &str, version: &str, layers: &[SociLayer]) -> String {
    for (layer, number) in layers.iter().zip(0..) {
        let write =
            |name: String, bytes: &[u8]| fs::write(stored.place.path(&name), bytes).unwrap();
        write(format!("{number}.blob"), &layer.blob);
        write(format!("{number}.ztoc"), &layer.ztoc.encode());
    }
    let repository = format!("http://{}/v2/app", stored.registry.authority());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let count = layers.len().to_string();
    let pushed = Command::new("python3")
        .args(["-c", PUSH, &repository, tag, version, &count, architecture])
        .current_dir(stored.place.path("."))
        .output()
        .unwrap();
    assert!(pushed.status.success(), "{pushed:?}");
    format!("oci://{}/app:{tag}", stored.registry.authority())
}

fn len(layers: &[SociLayer]) -> u64 {
    layers.iter().map(|layer| layer.blob.len() as u64).sum()
}

/// Counts the layers that `info` reports as verified in this way.
fn verified(stored: &Stored, arguments: &[&str], how: &str) -> usize {
    let info = stored.place.run(&[&["info", "--json"], arguments].concat());
    let info = info.ok().json();
    let described = info["details"]["lowest first"].as_str().unwrap();
    described.matches(how).count()
}

#[test]
fn an_image_that_names_its_index_of_soci_is_read_by_it() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, layers) = (&stored.place, made(&stored));
    let name = push(&stored, "v2", "v2", &layers);
    let (text, fetched, again) = stored.run_cold(&["cat", &name, "/etc/passwd"]);
    assert_eq!((text.as_str(), again), ("app\n", 0));
    assert!(fetched * 2 < len(&layers), "{fetched} of {}", len(&layers));
    let how = "each part verified by its table of contents";
    assert_eq!(verified(&stored, &[&name], how), 2);
    // The tables and the chunks read so far are cached, so both can be used without a server.
    let listed = place.run(&["ls", "--offline", &name, "/etc/passwd"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let read = place.run(&["cat", "--offline", &name, "/etc/passwd"]);
    assert_eq!(
        (read.code, read.text()),
        (Some(0), "app\n"),
        "{}",
        read.stderr
    );
    let (_, fetched, again) = stored.run_cold(&["check", "--require-verified", &name]);
    assert!(fetched <= len(&layers) && again == 0, "{fetched}");
    let same = place.run(&["diff", &name, "unpacked/rootfs"]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
}

#[test]
fn an_index_of_soci_that_refers_to_an_image_counts_where_it_is_asked_for() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, layers) = (&stored.place, made(&stored));
    let (name, all) = (push(&stored, "v1", "v1", &layers), len(&layers));
    let (text, fetched, again) = stored.run_cold(&["cat", "--referrers", &name, "/etc/passwd"]);
    assert_eq!((text.as_str(), again), ("app\n", 0));
    assert!(fetched * 2 < all, "{fetched} of {all}");
    // The index and the chunks read with it can be used without a server.
    let offline = |arguments: &[&str]| place.run(&[arguments, &["--offline", &name]].concat());
    let read = place.run(&["cat", "--offline", "--referrers", &name, "/etc/passwd"]);
    assert_eq!(
        (read.code, read.text()),
        (Some(0), "app\n"),
        "{}",
        read.stderr
    );
    assert_eq!(offline(&["ls", "-R", "--referrers"]).code, Some(0));
    let how = "each part compared with an index that forerun did not make";
    assert_eq!(verified(&stored, &["--referrers", &name], how), 2);
    let refused = offline(&["ls"]);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("not in the cache"),
        "{}",
        refused.stderr
    );
    let same = place.run(&["diff", "--referrers", &name, "unpacked/rootfs"]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
    // The index is not used without the option, or with `--require-verified`.
    for arguments in [
        &["ls", &name][..],
        &["ls", "--referrers", "--require-verified", &name],
    ] {
        let (_, fetched, _) = stored.run_cold(arguments);
        assert_eq!(fetched, all, "{arguments:?}");
    }
    // The index that the cache made takes precedence over the SOCI index.
    let how = "each part verified by a kept index";
    assert_eq!(verified(&stored, &["--referrers", &name], how), 2);
}

#[test]
fn altered_spans_are_errors_and_tables_of_referrers_that_lie_are_not_used() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, good) = (&stored.place, made(&stored));
    let mut altered = good.clone();
    let middle = altered[0].blob.len() / 2;
    altered[0].blob[middle] ^= 4;
    for (version, tag) in [("v1", "altered-v1"), ("v2", "altered-v2")] {
        let name = push(&stored, tag, version, &altered);
        let ran = place.run(&["extract", "-q", "--referrers", "-C", tag, &name]);
        assert_ne!(ran.code, Some(0), "{version}");
        assert!(ran.stderr.contains("layer sha256:"), "{}", ran.stderr);
    }
    // The table of another layer, and a table with a name that leads outside.
    let mut of_other = good.clone();
    of_other[0].ztoc = good[1].ztoc.clone();
    let mut climbs = good;
    climbs[0].ztoc.metadata[1].name = b"../up".to_vec();
    for (layers, tag) in [(of_other, "other"), (climbs, "climbs")] {
        let name = push(&stored, &format!("{tag}-v1"), "v1", &layers);
        let (_, fetched, _) = stored.run_cold(&["cat", "--referrers", &name, "/etc/passwd"]);
        assert!(
            fetched * 2 > len(&layers),
            "the layer came whole: {fetched}"
        );
        let same = place.run(&["diff", "--referrers", &name, "unpacked/rootfs"]);
        assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
        // The manifest names an index of version 2, so a defect is an error.
        let name = push(&stored, &format!("{tag}-v2"), "v2", &layers);
        let ran = place.run(&["ls", &name]);
        assert_ne!(ran.code, Some(0), "{tag}");
        assert!(ran.stderr.contains("table of contents"), "{}", ran.stderr);
        assert!(ran.stderr.contains("layer sha256:"), "{}", ran.stderr);
    }
}
