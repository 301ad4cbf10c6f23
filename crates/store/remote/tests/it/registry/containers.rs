//! Container images: each layer is an image that is verified as a whole.

use std::sync::Arc;

use forerun_cache::{Cache, CacheOptions, Digest};
use forerun_io::ReadAt as _;
use forerun_remote::{
    Identity, LayerContents, Opened, Reference, RemoteError, RemoteImage, RemoteOptions, Result,
    open, open_all,
};
use forerun_remote::{NoPlatform, Platform};
use forerun_testkit::{TempDir, eventually, temp_dir};
use serde_json::{Value, json};

use super::fake::{Answer, Fake, Request};
use super::store::{OCI_INDEX, OCI_MANIFEST, Store};
use super::support::image;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

struct Place {
    server: Fake,
    cache: TempDir,
}

impl Place {
    fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            server: Fake::start(answer),
            cache: temp_dir("containers"),
        }
    }

    fn options(&self) -> RemoteOptions {
        let mut options = crate::support::options(self.cache.path());
        options.registry.attempts = 2;
        options
    }

    fn reference(&self, tag: &str) -> Reference {
        let text = format!("oci://{}/a:{tag}", self.server.authority());
        Reference::parse(&text).unwrap()
    }

    fn layers(&self, tag: &str, options: &RemoteOptions) -> Result<Vec<Arc<RemoteImage>>> {
        Ok(match open_all(&self.reference(tag), options)? {
            Opened::Layers(layers) => layers,
            Opened::Image(image) => vec![image],
        })
    }
}

fn container(store: &mut Store, tag: &str, layers: &[(&str, &[u8])]) -> Value {
    let config = store.blob(CONFIG, b"{}");
    let layers: Vec<Value> = layers
        .iter()
        .map(|(media_type, bytes)| store.blob(media_type, bytes))
        .collect();
    let document = json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers
    });
    let digest = store.manifest(tag, OCI_MANIFEST, &document);
    let len = serde_json::to_vec(&document).unwrap().len();
    json!({"mediaType": OCI_MANIFEST, "digest": digest.to_string(), "size": len})
}

#[test]
fn layers_are_opened_by_digest_with_one_manifest_for_all() {
    let (first, second) = (image(300_000), image(70_000));
    let mut store = Store::default();
    container(
        &mut store,
        "v1",
        &[(GZIP, &first), (DOCKER, &second), (GZIP, &first)],
    );
    let place = Place::new(move |request| store.answer(request));
    let layers = place.layers("v1", &place.options()).unwrap();
    assert_eq!(place.server.log().len(), 1, "the manifest, and no layer");
    assert_eq!(layers.len(), 3);
    assert!(Arc::ptr_eq(&layers[0], &layers[2]), "the same layer twice");
    for (layer, bytes) in layers.iter().zip([&first, &second]) {
        layer.ensure_whole(&mut || ()).unwrap();
        let mut read = vec![0; bytes.len()];
        layer.read_exact_at(0, &mut read).unwrap();
        assert!(read == *bytes);
        assert!(layer.status().verified);
    }
    let manifests = place.server.log();
    let manifests = manifests
        .iter()
        .filter(|request| request.path.contains("/manifests/"));
    assert_eq!(manifests.count(), 1);
    // Opening it as a single image is still refused.
    let error = open(&place.reference("v1"), &place.options()).unwrap_err();
    assert!(error.to_string().contains("3 layers"), "{error}");
}

#[test]
fn a_layer_of_other_bytes_is_never_whole() {
    let bytes = image(200_000);
    let mut store = Store::default();
    container(&mut store, "v1", &[(GZIP, &bytes)]);
    for blob in store
        .blobs
        .values_mut()
        .filter(|blob| blob.len() == bytes.len())
    {
        blob[123_456] ^= 1;
    }
    let place = Place::new(move |request| store.answer(request));
    let layers = place.layers("v1", &place.options()).unwrap();
    let error = layers[0].ensure_whole(&mut || ()).unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    let mut read = [0; 10];
    assert!(
        layers[0].read_exact_at(0, &mut read).is_err(),
        "nothing is served of it"
    );
}

/// Checks that wrong bytes that arrive after the failed verification are not kept. The next process
/// would take them for right until it has the whole layer.
#[test]
fn nothing_of_a_layer_of_other_bytes_is_kept() {
    let bytes = image(200_000);
    let mut store = Store::default();
    container(&mut store, "v1", &[(GZIP, &bytes)]);
    let mut blobs = store.blobs.values_mut();
    let layer = blobs.find(|blob| blob.len() == bytes.len()).unwrap();
    layer[123_456] ^= 1;
    let place = Place::new(move |request| store.answer(request));
    for round in 0..20 {
        let mut options = place.options();
        let cache = temp_dir("containers-wrong");
        options.cache_dir = Some(cache.path().to_path_buf());
        let layers = place.layers("v1", &options).unwrap();
        let layer = &layers[0];
        std::thread::scope(|scope| {
            // Readers keep requesting the dropped chunks.
            for _ in 0..4 {
                scope.spawn(|| while layer.read_exact_at(150_000, &mut [0; 10]).is_ok() {});
            }
            let error = layer.ensure_whole(&mut || ()).unwrap_err();
            assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
        });
        // Chunks of the last request are stored after the image was closed, and dropped then.
        eventually(&format!("nothing is kept, round {round}"), || {
            let status = layer.status();
            (status.in_flight, status.local_bytes) == (0, 0)
        });
    }
}

#[test]
fn the_platform_chooses_a_manifest_of_an_index() {
    let mut store = Store::default();
    let mut entries = Vec::new();
    for (platform, bytes) in [("amd64", b"first"), ("s390x", b"other")] {
        let mut entry = container(&mut store, platform, &[(GZIP, bytes)]);
        entry["platform"] = json!({"os": "linux", "architecture": platform});
        entries.push(entry);
    }
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
    store.manifest("v1", OCI_INDEX, &index);
    let place = Place::new(move |request| store.answer(request));
    let mut options = place.options();
    for (platform, expected) in [("linux/amd64", b"first"), ("linux/s390x", b"other")] {
        options.registry.platform = Some(platform.parse().unwrap());
        let layers = place.layers("v1", &options).unwrap();
        let mut read = [0; 5];
        layers[0].read_exact_at(0, &mut read).unwrap();
        assert_eq!(&read, expected, "{platform}");
    }
    options.registry.platform = Some("linux/arm/v7".parse().unwrap());
    let error = place.layers("v1", &options).unwrap_err().to_string();
    assert!(
        error.contains("none of them for linux/arm/v7") && error.contains("linux/s390x"),
        "{error}"
    );
    assert_eq!("linux".parse::<Platform>(), Err(NoPlatform));
}

#[test]
fn what_cannot_be_merged_is_refused_by_name() {
    let mut store = Store::default();
    container(
        &mut store,
        "encrypted",
        &[
            (GZIP, b"a"),
            ("application/vnd.oci.image.layer.v1+encrypted", b"b"),
        ],
    );
    container(&mut store, "many", &vec![(GZIP, &b"a"[..]); 1025]);
    container(&mut store, "most", &vec![(GZIP, &b"a"[..]); 1024]);
    container(&mut store, "none", &[]);
    let place = Place::new(move |request| store.answer(request));
    let error = |tag: &str, options: &RemoteOptions| {
        let result = place.layers(tag, options).map(|layers| layers.len());
        result.map_or_else(|error| error.to_string(), |count| format!("{count} layers"))
    };
    let options = place.options();
    assert!(error("encrypted", &options).contains("compressed or encrypted"));
    assert!(error("many", &options).contains("1025 layers; at most 1024"));
    assert_eq!(error("most", &options), "1024 layers");
    assert!(error("none", &options).contains("no layers"));
    let mut strict = place.options();
    strict.require_verified = true;
    assert_eq!(
        error("most", &strict),
        "1024 layers",
        "each is verified as a whole"
    );
    let mut recording = place.options();
    let list = place.cache.path().join("list");
    recording.record = Some(list.clone());
    assert_eq!(error("most", &recording), "1024 layers");
    // The last layer to be closed writes the lists of all layers. Nothing was read.
    let lists = forerun_cache::AccessList::parse_all(&std::fs::read(list).unwrap()).unwrap();
    assert_eq!(lists.iter().map(|list| list.chunks()).sum::<u64>(), 0);
}

/// Serves an image `v1` with one eStargz layer, whose table has this digest.
fn place_of_estargz(bytes: &[u8], digest: Digest) -> Place {
    let mut store = Store::default();
    let config = store.blob(CONFIG, b"{}");
    let mut layer = store.blob(GZIP, bytes);
    layer["annotations"] =
        json!({"containerd.io/snapshot/stargz/toc.digest": digest.to_string(), "other": "x"});
    let document = json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]
    });
    store.manifest("v1", OCI_MANIFEST, &document);
    Place::new(move |request| store.answer(request))
}

#[test]
fn wrong_bytes_are_fetched_again_while_the_request_that_brought_them_ends() {
    let bytes = image(300_000);
    let place = place_of_estargz(&bytes, Digest::of(b"table"));
    let mut options = place.options();
    options.readahead = forerun_remote::Readahead::Off;
    let layers = place.layers("v1", &options).unwrap();
    for _ in 0..200 {
        let mut read = [0; 100];
        layers[0].read_exact_at(70_000, &mut read).unwrap();
        assert!(read == bytes[70_000..70_100]);
        layers[0].distrust(70_000..70_100);
    }
}

#[test]
fn tables_of_contents_come_from_the_annotations_of_a_layer() {
    let bytes = image(300_000);
    let digest = Digest::of(b"table");
    let place = place_of_estargz(&bytes, digest);
    let mut options = place.options();
    options.readahead = forerun_remote::Readahead::Off;
    let layers = place.layers("v1", &options).unwrap();
    let contents = LayerContents::EStargz { digest };
    assert_eq!(layers[0].contents(), Some(&contents));
    assert_eq!(layers[0].status().verified_by, Some("contents"));
    let read = |at: u64| {
        let mut read = [0; 100];
        layers[0].read_exact_at(at, &mut read).unwrap();
        let at = usize::try_from(at).unwrap();
        assert!(read == bytes[at..at + 100]);
        layers[0].status().fetched_bytes
    };
    // Only the chunks that a reader reports as wrong are fetched again.
    let first = read(70_000);
    assert_eq!(read(70_000), first);
    layers[0].distrust(70_000..70_100);
    let again = read(70_000);
    assert_eq!(again, 2 * first);
    layers[0].prefetch_part(&(200_000..u64::MAX));
    layers[0].ensure_whole(&mut || ()).unwrap();
    assert_eq!(layers[0].status().verified_by, Some("whole"));
    let all = layers[0].status().fetched_bytes;
    layers[0].distrust(0..300_000);
    assert_eq!(read(70_000), all, "all of it was proven");
}

/// Returns a registry that sends `sent` for the layer `layer`. `table` is the layer's table of
/// contents.
fn with_table(layer: &[u8], sent: &[u8], table: Option<&[u8]>) -> Store {
    const TOC: &str = "containerd.io/snapshot/stargz/toc.digest";
    let mut store = Store::default();
    let config = store.blob(CONFIG, b"{}");
    let mut named = store.blob(GZIP, layer);
    if let Some(table) = table {
        named["annotations"] = json!({ TOC: Digest::of(table).to_string() });
    }
    let document = json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [named]
    });
    store.manifest("v1", OCI_MANIFEST, &document);
    store.blobs.insert(Digest::of(layer), sent.to_vec());
    store
}

/// Opens a layer with the table `table` of an honest registry, after another layer with the same
/// digest and the table `theirs` has stored other bytes in the same cache. Returns it with its
/// bytes.
fn after_another(
    table: Option<&[u8]>,
    theirs: Option<&[u8]>,
) -> (Arc<RemoteImage>, Vec<u8>, TempDir) {
    let bytes = image(200_000);
    let mut others = bytes.clone();
    others[123_456] ^= 1;
    let honest = with_table(&bytes, &bytes, table);
    let honest = Place::new(move |request| honest.answer(request));
    let other = with_table(&bytes, &others, theirs);
    let other = Place::new(move |request| other.answer(request));
    let options = honest.options();
    let theirs = other.layers("v1", &options).unwrap();
    let mut read = vec![0; 150_000];
    theirs[0].read_exact_at(0, &mut read).unwrap();
    assert!(read == others[..150_000]);
    let ours = honest.layers("v1", &options).unwrap().remove(0);
    ours.ensure_whole(&mut || ()).unwrap();
    let mut read = vec![0; bytes.len()];
    ours.read_exact_at(0, &mut read).unwrap();
    assert!(read == bytes);
    (ours, bytes, honest.cache)
}

#[test]
fn bytes_that_another_table_proves_are_not_those_of_a_layer() {
    let (ours, bytes, cache) = after_another(Some(b"table"), Some(b"another table"));
    assert_eq!(ours.begun_anew(), 0);
    let name = ours.blob().identity().to_owned();
    let digest = Digest::of(&bytes);
    assert_eq!(name, format!("blob {digest} by {}", Digest::of(b"table")));
    // Removing a layer removes its copies for all tables.
    let cache = Cache::open(cache.path(), CacheOptions::default()).unwrap();
    let names = cache.identities().unwrap();
    let identity = Identity::Blob(digest);
    assert_eq!(
        names.iter().filter(|name| identity.is_named(name)).count(),
        2
    );
}

#[test]
fn wrong_bytes_that_another_process_stored_are_dropped_and_fetched_again() {
    for table in [Some(&b"table"[..]), None] {
        let (ours, ..) = after_another(table, table);
        assert_eq!(ours.begun_anew(), 1);
        assert!(ours.status().verified);
    }
}

#[test]
fn a_registry_whose_layer_is_wrong_is_not_asked_for_ever() {
    let bytes = image(200_000);
    let mut others = bytes.clone();
    others[0] ^= 1;
    let store = with_table(&bytes, &others, Some(b"table"));
    let place = Place::new(move |request| store.answer(request));
    let layers = place.layers("v1", &place.options()).unwrap();
    let error = layers[0].ensure_whole(&mut || ()).unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    assert_eq!(layers[0].begun_anew(), 0);
}
