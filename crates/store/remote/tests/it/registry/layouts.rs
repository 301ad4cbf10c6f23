//! Container images that are pulled into an OCI image layout, and container images that are opened
//! from the cache.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use forerun_cache::Digest;
use forerun_io::ReadAt as _;
use forerun_remote::layers_of_layout;
use forerun_remote::{Opened, Reference, RemoteError, RemoteOptions, open_all, pull_to};
use forerun_testkit::{TempDir, temp_dir};
use serde_json::{Value, json};

use super::fake::{Answer, Fake};
use super::store::{OCI_MANIFEST, Store};
use super::support::image;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// A registry whose contents change. Without contents, it does not answer.
struct Place {
    server: Fake,
    store: Arc<Mutex<Option<Store>>>,
    dir: TempDir,
}

impl Place {
    fn new(store: Store) -> Self {
        let store = Arc::new(Mutex::new(Some(store)));
        let of_server = Arc::clone(&store);
        let answer = move |request: &_| match &*of_server.lock().unwrap() {
            Some(store) => store.answer(request),
            None => Answer::new(503, ""),
        };
        Self {
            server: Fake::start(answer),
            store,
            dir: temp_dir("layouts"),
        }
    }

    fn options(&self) -> RemoteOptions {
        let mut options = crate::support::options(&self.dir.path().join("cache"));
        options.registry.attempts = 1;
        options.retries = 0;
        options
    }

    fn reference(&self, tag: &str) -> Reference {
        Reference::parse(&format!("oci://{}/a{tag}", self.server.authority())).unwrap()
    }

    fn pull(&self, tag: &str) -> Result<(), RemoteError> {
        let (layout, options) = (self.dir.path().join("layout"), self.options());
        let mut last = None;
        let reference = self.reference(tag);
        let before = self.server.log().len();
        let pulled = pull_to(&reference, &layout, &options, false, &mut |p| {
            last = Some(p)
        })?;
        assert!(pulled.is_container && pulled.verified);
        let last = last.unwrap();
        assert_eq!((last.done, last.total), (pulled.len, pulled.len));
        let log = self.server.log();
        let new = log.iter().skip(before);
        let manifests = new.filter(|request| request.path.contains("/manifests/"));
        assert_eq!(manifests.count(), 1, "the manifest is read once");
        Ok(())
    }

    /// Returns the number of blobs requested since the last call, without configurations.
    fn fetched(&self, before: &mut usize, store: &Store) -> usize {
        let log = self.server.log();
        let new = log.iter().skip(std::mem::replace(before, log.len()));
        let is_layer = |path: &str| {
            let digest = path.rsplit('/').next().unwrap();
            let digest: Digest = digest.parse().unwrap();
            store.blobs[&digest].len() > 100
        };
        new.filter(|request| request.path.contains("/blobs/") && is_layer(&request.path))
            .count()
    }

    /// Returns the digests of the layers that the layout has under a name.
    fn layers(&self, name: &str) -> Vec<Digest> {
        let layout = self.dir.path().join("layout");
        let mut read = |path: &str, _: usize| fs::read(layout.join(path));
        let layers = layers_of_layout(Some(name), None, false, &mut read);
        let layers = layers.unwrap().layers;
        for layer in &layers {
            let bytes = fs::read(layout.join(&layer.path)).unwrap();
            assert_eq!(Digest::of(&bytes), layer.digest);
        }
        layers.iter().map(|layer| layer.digest).collect()
    }
}

fn container(store: &mut Store, tag: &str, layers: &[(&str, &[u8])], is_docker: bool) -> Digest {
    let (kind, config) = if is_docker {
        (DOCKER_MANIFEST, DOCKER_CONFIG)
    } else {
        (OCI_MANIFEST, CONFIG)
    };
    let config = store.blob(config, tag.as_bytes());
    let layers = layers.iter().map(|(kind, bytes)| store.blob(kind, bytes));
    let layers: Vec<Value> = layers.collect();
    let document = json!({
        "schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers
    });
    store.manifest(tag, kind, &document)
}

fn digests(layers: &[&[u8]]) -> Vec<Digest> {
    layers.iter().map(|bytes| Digest::of(bytes)).collect()
}

#[test]
fn only_what_a_layout_lacks_is_fetched() {
    let (first, second, third) = (image(9_000_000), image(70_000), image(500));
    let mut store = Store::default();
    container(
        &mut store,
        "v1",
        &[(GZIP, &first), (GZIP, &second), (GZIP, &first)],
        false,
    );
    container(&mut store, "v2", &[(GZIP, &first), (GZIP, &third)], false);
    let known = store.clone();
    let place = Place::new(store);
    let mut seen = 0;
    place.pull(":v1").unwrap();
    assert!(place.fetched(&mut seen, &known) >= 2);
    assert_eq!(place.layers("v1"), digests(&[&first, &second, &first]));
    place.pull(":v2").unwrap();
    assert_eq!(place.fetched(&mut seen, &known), 1, "the layer that is new");
    assert_eq!(place.layers("v2"), digests(&[&first, &third]));
    assert_eq!(place.layers("v1").len(), 3, "both are there");
    place.pull(":v1").unwrap();
    assert_eq!(place.fetched(&mut seen, &known), 0);
    // A damaged blob is fetched again.
    let blob = place
        .dir
        .path()
        .join("layout/blobs/sha256")
        .join(Digest::of(&second).hex());
    fs::write(&blob, &first[..70_000]).unwrap();
    place.pull(":v1").unwrap();
    assert_eq!(place.fetched(&mut seen, &known), 1);
    assert_eq!(place.layers("v1").len(), 3);
    let rest = fs::read_dir(place.dir.path().join("layout/blobs/sha256")).unwrap();
    assert_eq!(
        rest.count(),
        3 + 2 + 2,
        "layers, configurations and manifests"
    );
}

#[test]
fn documents_of_docker_get_the_types_of_oci() {
    let layer = image(3000);
    let mut store = Store::default();
    container(&mut store, "latest", &[(DOCKER, &layer)], true);
    let place = Place::new(store);
    place.pull("").unwrap();
    assert_eq!(place.layers("latest"), digests(&[&layer]));
    let layout = place.dir.path().join("layout");
    let index: Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let entry = &index["manifests"][0];
    assert_eq!(entry["mediaType"], OCI_MANIFEST);
    let digest: Digest = entry["digest"].as_str().unwrap().parse().unwrap();
    let manifest = fs::read(layout.join("blobs/sha256").join(digest.hex())).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["config"]["mediaType"], CONFIG);
    assert_eq!(manifest["layers"][0]["mediaType"], GZIP);
}

#[test]
fn other_directories_and_other_bytes_are_refused() {
    let layer = image(30_000);
    let mut store = Store::default();
    container(&mut store, "v1", &[(GZIP, &layer)], false);
    let place = Place::new(store);
    let layout = place.dir.path().join("layout");
    fs::create_dir(&layout).unwrap();
    fs::write(layout.join("file"), "mine").unwrap();
    let error = place.pull(":v1").unwrap_err().to_string();
    assert!(error.contains("nor an OCI image layout"), "{error}");
    fs::remove_file(layout.join("file")).unwrap();
    let mut altered = layer.clone();
    altered[20_000] ^= 1;
    let alter = |bytes: &[u8]| {
        let mut store = place.store.lock().unwrap();
        let blobs = &mut store.as_mut().unwrap().blobs;
        blobs.insert(Digest::of(&layer), bytes.to_vec());
    };
    alter(&altered);
    let error = place.pull(":v1").unwrap_err();
    assert!(matches!(error, RemoteError::WrongDigest { .. }), "{error}");
    assert!(!layout.join("index.json").exists(), "nothing names it");
    alter(&layer);
    place.pull(":v1").unwrap();
    assert_eq!(place.layers("v1"), digests(&[&layer]));
    fs::write(layout.join("index.json"), "[]").unwrap();
    assert!(place.pull(":v1").is_err(), "an index of another form stays");
    assert_eq!(fs::read(layout.join("index.json")).unwrap(), b"[]");
}

fn contents(
    place: &Place,
    tag: &str,
    options: &RemoteOptions,
) -> Result<Vec<Vec<u8>>, RemoteError> {
    let Opened::Layers(layers) = open_all(&place.reference(tag), options)? else {
        panic!("it has layers");
    };
    let contents = layers.iter().map(|layer| {
        layer.ensure_whole(&mut || ())?;
        let mut bytes = vec![0; usize::try_from(layer.len()).unwrap()];
        let read = layer.read_exact_at(0, &mut bytes);
        read.map_err(|error| RemoteError::Cache {
            reason: error.to_string(),
            is_full: false,
        })?;
        Ok(bytes)
    });
    contents.collect()
}

#[test]
fn a_container_image_whose_layers_are_here_needs_no_registry() {
    let layers = [image(300_000), image(70_000)];
    let mut store = Store::default();
    let both = [(GZIP, &layers[0][..]), (DOCKER, &layers[1][..])];
    container(&mut store, "v1", &both, false);
    container(&mut store, "v2", &both[..1], false);
    let place = Place::new(store);
    let (online, mut offline) = (place.options(), place.options());
    offline.offline = true;
    assert!(matches!(
        contents(&place, ":v1", &offline),
        Err(RemoteError::Offline { .. })
    ));
    assert_eq!(contents(&place, ":v1", &online).unwrap(), layers);
    let store = place.store.lock().unwrap().take();
    let before = place.server.log().len();
    assert_eq!(contents(&place, ":v1", &offline).unwrap(), layers);
    assert_eq!(place.server.log().len(), before, "it is not asked");
    assert_eq!(
        contents(&place, ":v1", &online).unwrap(),
        layers,
        "it does not answer"
    );
    let mut verified = offline.clone();
    verified.require_verified = true;
    assert_eq!(contents(&place, ":v1", &verified).unwrap(), layers);
    let error = contents(&place, ":v2", &offline).unwrap_err();
    assert!(matches!(error, RemoteError::Offline { .. }), "{error}");
    // The tag moves; the record is updated with it.
    let mut store = store.unwrap();
    container(&mut store, "v1", &both[1..], false);
    *place.store.lock().unwrap() = Some(store);
    assert_eq!(contents(&place, ":v1", &online).unwrap(), layers[1..]);
    *place.store.lock().unwrap() = None;
    assert_eq!(contents(&place, ":v1", &offline).unwrap(), layers[1..]);
    // Altered cached bytes are not served.
    alter_all(&place.dir.path().join("cache"));
    assert!(contents(&place, ":v1", &offline).is_err());
}

#[test]
fn a_layer_that_never_came_is_named() {
    let mut store = Store::default();
    container(&mut store, "v1", &[(GZIP, &image(300_000))], false);
    let place = Place::new(store);
    let mut options = place.options();
    open_all(&place.reference(":v1"), &options).unwrap();
    options.offline = true;
    let error = contents(&place, ":v1", &options).unwrap_err();
    assert!(matches!(error, RemoteError::Offline { .. }), "{error}");
}

fn alter_all(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            alter_all(&path);
        } else if path.metadata().unwrap().len() >= 70_000 {
            let mut bytes = fs::read(&path).unwrap();
            bytes[60_000] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
}
