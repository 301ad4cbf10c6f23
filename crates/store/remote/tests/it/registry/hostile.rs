//! Registries with hostile answers.

use forerun_cache::Digest;
use forerun_remote::pull::pull;
use forerun_remote::{RemoteError, runtime};
use serde_json::{Value, json};

use super::fake::{Answer, Fake, Request};
use super::push_pull::pull_options;
use super::store::{OCI_INDEX, OCI_MANIFEST, Store};
use super::support::{PART, image, name, open, options, read, registry};

/// Opens `store`, and returns the outcome as text.
fn refusal(store: Store) -> String {
    let server = Fake::start(move |request| store.answer(request));
    let outcome = open(&registry(options()), &name(&server.authority(), "a:v1"));
    match outcome {
        Ok(layout) => format!("opened: {} bytes", layout.len),
        Err(error) => error.to_string(),
    }
}

type Change = fn(&mut Value);

/// Changes of the configuration, and the expected errors.
const CONFIGS: &[(Change, &str)] = &[
    (|_| (), "opened: 196613 bytes"),
    (|c| c["imageLength"] = json!(0), "imageLength 0"),
    (|c| c["imageLength"] = json!(196_614), "has 5 bytes, not 6"),
    (
        |c| c["imageLength"] = json!(u64::MAX),
        "imageLength 18446744073709551615",
    ),
    (
        |c| c["imageLength"] = json!(1_u64 << 50),
        "more than 268435456 chunks",
    ),
    (|c| c["imageLength"] = json!(-1), "unexpected JSON"),
    (|c| c["chunkSize"] = json!(0), "0 is not a chunk size"),
    (|c| c["chunkSize"] = json!(8192), "has 8192 bytes, not"),
    (|c| c["partLength"] = json!(0), "partLength 0"),
    (|c| c["partLength"] = json!(4097), "partLength 4097"),
    (
        |c| c["partLength"] = json!(4096),
        "an image of this length has 50",
    ),
    (|c| c["verityRoot"] = json!("sha1:00"), "verityRoot sha1:00"),
    (|c| *c = json!([]), "unexpected JSON"),
];

/// Changes of the manifest, and the expected errors.
const MANIFESTS: &[(Change, &str)] = &[
    (|m| m["schemaVersion"] = json!(1), "schemaVersion is 1"),
    (
        |m| m["layers"] = json!([]),
        "0 layers; an image of this length has 5",
    ),
    (
        |m| drop(m["layers"].as_array_mut().unwrap().pop()),
        "4 layers; an image of this length has 5",
    ),
    (
        |m| m["layers"].as_array_mut().unwrap().swap(0, 1),
        "layer 0 has the type application/vnd.forerun.part.v1",
    ),
    (
        |m| m["layers"][1]["size"] = json!(1),
        "layer 1 has 1 bytes, not 65536",
    ),
    (
        |m| m["layers"][0]["size"] = json!(1_u64 << 60),
        "layer 0 has 1152921504606846976",
    ),
    (
        |m| m["layers"][2]["digest"] = json!("sha256:../../x"),
        "digest sha256:../../x",
    ),
    (
        |m| m["manifests"] = json!([]),
        "both a manifest and an index",
    ),
    (|m| m["mediaType"] = json!(OCI_INDEX), "its media type is"),
    (|m| m["mediaType"] = json!("text/x"), "its media type is"),
    (
        |m| m["config"]["digest"] = json!(Digest::of(b"else").to_string()),
        "not found",
    ),
    (|m| *m = json!("text"), "unexpected JSON"),
];

#[test]
fn changed_documents_are_refused_with_a_reason() {
    let image = image(3 * PART as usize + 5);
    for (change, expected) in CONFIGS {
        // With chunks of 8 KiB the table has one block of 8 KiB; the table with chunks of 4 KiB has
        // no such length.
        let text = refusal(Store::artifact(&image, change, |_| ()));
        assert!(
            text.contains(expected) || text.contains("layer 0 has 4096"),
            "{expected}: {text}"
        );
    }
    for (change, expected) in MANIFESTS {
        let text = refusal(Store::artifact(&image, |_| (), change));
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn what_is_no_image_is_said_to_be_none() {
    let mut several = Store::single("application/vnd.oci.image.layer.v1.tar+gzip", b"x");
    let layer = several.blob("application/vnd.oci.image.layer.v1.tar+gzip", b"y");
    let document = json!({"schemaVersion": 2, "config": layer, "layers": [layer, layer]});
    several.manifest("v1", OCI_MANIFEST, &document);
    for (store, expected) in [
        (
            Store::single("application/vnd.sylabs.sif.layer.v1.sif", b"image"),
            "opened: 5 bytes",
        ),
        (
            Store::single("application/vnd.oci.image.layer.v1.tar+gzip", b"x"),
            "tar archive",
        ),
        (
            Store::single("application/vnd.docker.image.rootfs.diff.tar.gzip", b"x"),
            "tar archive",
        ),
        (
            Store::single("application/x.disk+zstd", b"x"),
            "compressed or encrypted",
        ),
        (
            several,
            "2 layers, the first a application/vnd.oci.image.layer.v1.tar+gzip",
        ),
        (Store::default(), "not found"),
    ] {
        let text = refusal(store);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn indexes_are_chosen_from_and_not_nested() {
    let image = image(PART as usize);
    let mut store = Store::artifact(&image, |_| (), |_| ());
    let bytes = store.manifests["v1"].1.clone();
    let entry = |artifact: &str| {
        json!({"mediaType": OCI_MANIFEST, "digest": Digest::of(&bytes).to_string(),
               "size": bytes.len(), "artifactType": artifact})
    };
    let ours = entry("application/vnd.forerun.image.v1");
    let other = entry("application/x.signature");
    let index = |entries: &[&Value]| json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
    let nested = store.manifest("v1", OCI_INDEX, &index(&[&other, &ours]));
    assert_eq!(refusal(store.clone()), format!("opened: {PART} bytes"));
    let missing =
        json!({"mediaType": OCI_MANIFEST, "digest": Digest::of(b"").to_string(), "size": 0});
    store.manifest("v1", OCI_INDEX, &index(&[&missing]));
    assert!(refusal(store.clone()).contains("not found"));
    store.manifest("v1", OCI_INDEX, &index(&[&other, &missing]));
    let text = refusal(store.clone());
    assert!(
        text.contains("index of 2 manifests") && text.contains("x.signature"),
        "{text}"
    );
    let inner = json!({"mediaType": OCI_INDEX, "digest": nested.to_string(), "size": 1});
    store.manifest("v1", OCI_INDEX, &index(&[&inner]));
    assert!(refusal(store).contains("index within an index"));
}

#[test]
fn documents_are_those_of_their_digest_and_not_endless() {
    let image = image(PART as usize);
    let store = Store::artifact(&image, |_| (), |_| ());
    let digest = Digest::of(&store.manifests["v1"].1);
    let other = Store::artifact(&image[1..], |_| (), |_| ());
    // The digest returns another manifest.
    let lying = other.clone();
    let server = Fake::start(move |request: &Request| {
        let asked = Request {
            path: "/v2/a/manifests/v1".into(),
            ..request.clone()
        };
        lying.answer(&asked)
    });
    let one_attempt = forerun_remote::RegistryOptions {
        attempts: 1,
        ..options()
    };
    let one_try = registry(one_attempt);
    let error = open(&one_try, &name(&server.authority(), &format!("a@{digest}"))).unwrap_err();
    assert!(
        matches!(error, RemoteError::WrongDigest { expected, .. } if expected == digest),
        "{error}"
    );
    // The digest header does not match the bytes.
    let lying = other.clone();
    let server = Fake::start(move |request: &Request| {
        let mut answer = lying.answer(request);
        answer
            .headers
            .retain(|(name, _)| name != "Docker-Content-Digest");
        answer.with("Docker-Content-Digest", digest)
    });
    let error = open(&one_try, &name(&server.authority(), "a:v1")).unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    // The digest returns another configuration.
    let lying = other;
    let server = Fake::start(move |request: &Request| {
        if request.path.contains("/blobs/") {
            Answer::new(200, "{}")
        } else {
            lying.answer(request)
        }
    });
    let error = open(&one_try, &name(&server.authority(), "a:v1")).unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    // The manifest is too long.
    let server = Fake::start(|_| Answer::new(200, vec![b' '; (4 << 20) + 1]));
    let error = open(&one_try, &name(&server.authority(), "a:v1")).unwrap_err();
    assert!(
        error.to_string().contains("longer than 4194304 bytes"),
        "{error}"
    );
}

#[test]
fn ranges_are_those_that_were_asked_for() {
    let image = image(2 * PART as usize);
    type Lie = fn(Answer) -> Answer;
    let cases: [(Lie, &str); 6] = [
        (
            |a| Answer { status: 200, ..a },
            "does not answer range requests",
        ),
        (
            |a| Answer {
                headers: Vec::new(),
                ..a
            },
            "without a usable Content-Range",
        ),
        (
            |a| Answer {
                headers: vec![("Content-Range".into(), "bytes 11-60/65536".into())],
                ..a
            },
            "bytes 11..61",
        ),
        (
            |a| Answer {
                headers: vec![("Content-Range".into(), "bytes 10-59/65537".into())],
                ..a
            },
            "has changed",
        ),
        (|a| a.with("Content-Encoding", "gzip"), "encoded as gzip"),
        (|_| Answer::new(403, "no"), "access denied (403)"),
    ];
    for (lie, expected) in cases {
        let store = Store::artifact(&image, |_| (), |_| ());
        let server = Fake::start(move |request: &Request| {
            let answer = store.answer(request);
            match request.header("range") {
                Some(_) => lie(answer),
                None => answer,
            }
        });
        let layout = open(&registry(options()), &name(&server.authority(), "a:v1")).unwrap();
        let error = read(&layout, 0, 0, 10..60).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_server_without_ranges_can_be_pulled_from() {
    let image = image(5 * PART as usize + 1);
    let store = Store::artifact(&image, |_| (), |_| ());
    let server = Fake::start(move |request: &Request| {
        let mut whole = request.clone();
        whole.headers.retain(|(name, _)| name != "range");
        store.answer(&whole)
    });
    let layout = open(&registry(options()), &name(&server.authority(), "a:v1")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
    assert!(std::fs::read(&output).unwrap() == image);
}

#[test]
fn a_root_that_is_not_of_the_parts_is_found_out() {
    let image = image(3 * PART as usize);
    let change = |c: &mut Value| c["verityRoot"] = json!(Digest::of(b"else").to_string());
    let store = Store::artifact(&image, change, |_| ());
    let server = Fake::start(move |request| store.answer(request));
    let layout =
        runtime::wait_for(registry(options()).open(&name(&server.authority(), "a:v1"), true))
            .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let error = pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("table"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
