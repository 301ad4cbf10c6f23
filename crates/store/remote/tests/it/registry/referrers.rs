//! Indexes and access lists beside container images, on registries with and without a referrers
//! API.

use std::sync::{Arc, Mutex};

use forerun_cache::{AccessList, Digest, TableBuilder};
use forerun_remote::{
    ImageIndex, LayerIndex, Opened, Reference, RemoteImage, RemoteOptions, Sidecar, open_all,
    push_sidecar,
};
use forerun_testkit::{TempDir, temp_dir};
use serde_json::{Value, json};

use super::fake::{Answer, Fake, Request};
use super::store::{OCI_INDEX, OCI_MANIFEST, Store};
use super::support::image;
use crate::support::PATIENT;

const INDEX: &str = "application/vnd.forerun.index.v1";

#[derive(Default)]
pub struct Writable {
    store: Store,
    /// The artifacts that refer to a manifest, if the registry lists them.
    referrers: Option<Vec<Value>>,
    /// The registry does not answer for paths that contain this text.
    down: Option<&'static str>,
    /// Returns the page of the list whose number is the last part of the query.
    pub pages: Option<Pages>,
}

/// Returns a page of the list of referrers, and the address of the next one.
type Pages = Box<dyn Fn(usize, &[Value]) -> (Vec<u8>, Option<String>) + Send>;

impl Writable {
    fn answer(&mut self, request: &Request) -> Answer {
        let (path, key) = request.path.rsplit_once('/').unwrap();
        if self.down.is_some_and(|part| request.path.contains(part)) {
            return Answer::new(503, "");
        }
        match request.method.as_str() {
            "POST" => Answer::new(202, "").with("Location", "/v2/a/blobs/uploads/1"),
            "PUT" if path.ends_with("/manifests") => self.put_manifest(key, request),
            "PUT" => {
                self.store.blob("", &request.body);
                Answer::new(201, "")
            }
            _ if path.ends_with("/referrers") => self.listed(request),
            _ => self.store.answer(request),
        }
    }

    fn listed(&self, request: &Request) -> Answer {
        let Some(manifests) = &self.referrers else {
            return Answer::new(404, "404 page not found");
        };
        let Some(pages) = &self.pages else {
            return Answer::new(200, index(manifests));
        };
        let number = request.query.rsplit_once("page=");
        let number = number.map_or(0, |(_, number)| number.parse().unwrap());
        let (page, next) = pages(number, manifests);
        let answer = Answer::new(200, page);
        match next {
            Some(next) => answer
                .with("Link", "</v2/a/first>; rel=\"first\"")
                .with("Link", format!("<{next}>; rel=\"next\"")),
            None => answer,
        }
    }

    fn put_manifest(&mut self, key: &str, request: &Request) -> Answer {
        let document: Value = serde_json::from_slice(&request.body).unwrap();
        let media_type = request.header("content-type").unwrap();
        assert_eq!(document["mediaType"], media_type);
        let digest = Digest::of(&request.body);
        let stored = (media_type.to_string(), request.body.clone());
        for key in [key.to_string(), digest.to_string()] {
            self.store.manifests.insert(key, stored.clone());
        }
        let answer = Answer::new(201, "");
        match (&mut self.referrers, document["subject"]["digest"].as_str()) {
            (Some(referrers), Some(subject)) => {
                referrers.insert(
                    0,
                    json!({
                        "mediaType": media_type, "digest": digest.to_string(),
                        "size": request.body.len(), "artifactType": document["artifactType"],
                        "annotations": document["annotations"],
                    }),
                );
                answer.with("OCI-Subject", subject)
            }
            _ => answer,
        }
    }
}

pub fn index(manifests: &[Value]) -> Vec<u8> {
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests});
    serde_json::to_vec(&index).unwrap()
}

pub struct Place {
    pub registry: Arc<Mutex<Writable>>,
    pub server: Fake,
    cache: TempDir,
    layer: Vec<u8>,
}

impl Place {
    pub fn new(lists_referrers: bool) -> Self {
        let layer = image(300_000);
        let mut store = Store::default();
        let config = store.blob("application/vnd.oci.image.config.v1+json", b"{}");
        let stored = store.blob("application/vnd.oci.image.layer.v1.tar+gzip", &layer);
        let document = json!({"schemaVersion": 2, "config": config, "layers": [stored]});
        store.manifest("v1", OCI_MANIFEST, &document);
        let registry = Arc::new(Mutex::new(Writable {
            store,
            referrers: lists_referrers.then(Vec::new),
            pages: None,
            down: None,
        }));
        let answers = Arc::clone(&registry);
        Self {
            registry,
            server: Fake::start(move |request| answers.lock().unwrap().answer(request)),
            cache: temp_dir("referrers"),
            layer,
        }
    }

    fn reference(&self) -> Reference {
        Reference::parse(&format!("oci://{}/a:v1", self.server.authority())).unwrap()
    }

    fn options(&self) -> RemoteOptions {
        let mut options = crate::support::options(self.cache.path());
        options.registry.attempts = 1;
        // Every request must be answered, even if the machine is busy.
        options.registry.timeout = PATIENT;
        (options.timeout, options.stall, options.connect_timeout) = (PATIENT, PATIENT, PATIENT);
        options.referrers = true;
        options
    }

    fn open(&self, options: &RemoteOptions) -> Arc<RemoteImage> {
        match open_all(&self.reference(), options).unwrap() {
            Opened::Layers(mut layers) => layers.pop().unwrap(),
            Opened::Image(image) => image,
        }
    }

    /// Makes an index of the layer whose archive is `archive`, and an access list with its second
    /// chunk.
    fn beside(&self, archive: &[u8]) -> Sidecar {
        let chunk = self.options().chunk_len;
        let mut table = TableBuilder::new(chunk).unwrap();
        table.push(&self.layer).unwrap();
        let digest = Digest::of(&self.layer);
        let list = format!("forerun access list 1\nimage: blob {digest}\nchunk: {chunk}\n1-1\n");
        Sidecar {
            index: ImageIndex {
                layers: vec![LayerIndex {
                    digest,
                    table: table.finish().unwrap(),
                    archive: archive.to_vec(),
                    accesses: None,
                }],
            },
            lists: vec![AccessList::parse(list.as_bytes()).unwrap()],
            tables: Vec::new(),
        }
    }

    pub fn push(&self, archive: &[u8], created: &str) {
        let (reference, options) = (self.reference(), self.options());
        push_sidecar(&reference, &self.beside(archive), created, &options).unwrap();
    }

    pub fn set_pages(
        &self,
        pages: impl Fn(usize, &[Value]) -> (Vec<u8>, Option<String>) + Send + 'static,
    ) {
        self.registry.lock().unwrap().pages = Some(Box::new(pages));
    }

    /// Opens the image. Returns the index that it uses, and how many pages were requested.
    pub fn found_in_pages(&self) -> (Option<Vec<u8>>, usize) {
        let before = self.server.log().len();
        let found = self.found();
        let asked = self.server.log().split_off(before);
        let is_page = |request: &&Request| request.path.contains("/referrers/");
        (found, asked.iter().filter(is_page).count())
    }

    /// Returns the archive's index that the image uses from the artifact.
    pub fn found(&self) -> Option<Vec<u8>> {
        let image = self.open(&self.options());
        image.named_index().map(|archive| archive.to_vec())
    }
}

#[test]
fn an_index_beside_an_image_is_found_and_the_newest_counts() {
    for lists_referrers in [true, false] {
        let place = Place::new(lists_referrers);
        assert_eq!(place.found(), None, "nothing was pushed");
        place.push(b"first", "2026-01-02T00:00:00Z");
        assert_eq!(place.found().as_deref(), Some(&b"first"[..]));
        place.push(b"second", "2026-02-02T00:00:00Z");
        assert_eq!(place.found().as_deref(), Some(&b"second"[..]));
        let image = place.open(&place.options());
        assert_eq!(image.status().verified_by, Some("index"));
        forerun_testkit::eventually("the chunk of the list", || image.status().local_bytes > 0);
        // Without the option, the registry is not asked for artifacts.
        let before = place.server.log().len();
        let plain = RemoteOptions {
            referrers: false,
            ..place.options()
        };
        assert!(place.open(&plain).named_index().is_none());
        let asked = place.server.log().split_off(before);
        assert!(
            asked
                .iter()
                .all(|request| !request.path.contains("referrers"))
        );
        // With `require_verified`, the list is used and the index is not.
        let strict = RemoteOptions {
            require_verified: true,
            ..place.options()
        };
        assert!(place.open(&strict).named_index().is_none());
        let tags = place.registry.lock().unwrap().store.manifests.clone();
        let tags: Vec<_> = tags
            .iter()
            .filter(|(tag, _)| tag.starts_with("sha256-"))
            .collect();
        if lists_referrers {
            assert_eq!(tags.len(), 0)
        } else {
            let index: Value = serde_json::from_slice(&tags[0].1.1).unwrap();
            assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
            assert_eq!(index["manifests"][0]["artifactType"], INDEX);
        }
    }
}

#[test]
fn what_cannot_be_used_beside_an_image_leaves_it_as_it_is() {
    let place = Place::new(true);
    place.push(b"good", "2026-01-02T00:00:00Z");
    let list = |entries: Option<Vec<Value>>| place.registry.lock().unwrap().referrers = entries;
    let good = place.registry.lock().unwrap().referrers.clone().unwrap();
    let stored = |document: &Value| {
        let mut registry = place.registry.lock().unwrap();
        let digest = registry.store.manifest("x", OCI_MANIFEST, document);
        let len = serde_json::to_vec(document).unwrap().len();
        json!({"mediaType": OCI_MANIFEST, "digest": digest.to_string(), "size": len, "artifactType": INDEX})
    };
    let manifest: Value = {
        let registry = place.registry.lock().unwrap();
        let digest = good[0]["digest"].as_str().unwrap();
        serde_json::from_slice(&registry.store.manifests[digest].1).unwrap()
    };
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut manifest = manifest.clone();
        change(&mut manifest);
        stored(&manifest)
    };
    let garbage = place.registry.lock().unwrap().store.blob("x", b"garbage");
    for (case, entry) in [
        (
            "another subject",
            changed(&|manifest| manifest["subject"]["digest"] = json!(Digest::of(b"").to_string())),
        ),
        (
            "no subject",
            changed(&|manifest| manifest["subject"] = json!(null)),
        ),
        (
            "an index that is none",
            changed(&|manifest| {
                manifest["layers"][0]["digest"] = garbage["digest"].clone();
                manifest["layers"][0]["size"] = garbage["size"].clone();
            }),
        ),
        (
            "a list that is none",
            changed(&|manifest| {
                manifest["layers"][1]["digest"] = garbage["digest"].clone();
                manifest["layers"][1]["size"] = garbage["size"].clone();
            }),
        ),
        (
            "an index that is too long",
            changed(&|manifest| manifest["layers"][0]["size"] = json!(1_u64 << 40)),
        ),
        (
            "an index that is longer than it says",
            changed(&|manifest| manifest["layers"][0]["size"] = json!(3)),
        ),
        ("an index of indexes", {
            stored(&json!({"schemaVersion": 2, "manifests": []}))
        }),
        ("a manifest that is not there", {
            json!({"mediaType": OCI_MANIFEST, "digest": Digest::of(b"none").to_string(), "size": 1, "artifactType": INDEX})
        }),
        ("another type", {
            let mut entry = good[0].clone();
            entry["artifactType"] = json!("application/other");
            entry
        }),
    ] {
        list(Some(vec![entry]));
        assert_eq!(place.found(), None, "{case}");
    }
    list(Some(good));
    assert_eq!(place.found().as_deref(), Some(&b"good"[..]));
}

#[test]
fn what_was_found_beside_an_image_is_remembered() {
    let place = Place::new(true);
    let offline = RemoteOptions {
        offline: true,
        ..place.options()
    };
    let found = |options: &RemoteOptions| {
        let image = place.open(options);
        image.named_index().map(|archive| archive.to_vec())
    };
    // Counts requests for whole blobs. Layers are requested in ranges.
    let asked = || {
        let log = place.server.log();
        let is_asked = |request: &&Request| {
            request.path.contains("/blobs/") && request.header("range").is_none()
        };
        log.iter().filter(is_asked).count()
    };
    place.push(b"first", "2026-01-02T00:00:00Z");
    // Artifacts were not searched for, so none is remembered.
    let without = RemoteOptions {
        referrers: false,
        ..place.options()
    };
    assert_eq!(found(&without), None);
    assert_eq!(found(&offline), None);
    assert_eq!(place.found().as_deref(), Some(&b"first"[..]));
    // Layers are fetched in the background until the image is closed, so only requests for
    // documents are counted.
    let of_documents = || {
        let log = place.server.log();
        let in_one = log
            .iter()
            .filter(|request| request.header("range").is_none());
        in_one.count()
    };
    let before = of_documents();
    assert_eq!(found(&offline).as_deref(), Some(&b"first"[..]));
    assert_eq!(of_documents(), before, "no server is asked");
    // The remembered index is not used without the option or with `require_verified`.
    for (referrers, require_verified) in [(false, false), (true, true)] {
        let options = RemoteOptions {
            referrers,
            require_verified,
            ..offline.clone()
        };
        assert_eq!(found(&options), None);
    }
    // Cached artifacts are not fetched again.
    let blobs = asked();
    assert_eq!(place.found().as_deref(), Some(&b"first"[..]));
    assert_eq!(asked(), blobs);
    place.push(b"second", "2026-02-02T00:00:00Z");
    assert_eq!(place.found().as_deref(), Some(&b"second"[..]));
    for down in ["/referrers/", ""] {
        place.registry.lock().unwrap().down = Some(down);
        assert_eq!(place.found().as_deref(), Some(&b"second"[..]), "{down:?}");
    }
    assert_eq!(found(&offline).as_deref(), Some(&b"second"[..]));
    // Once the registry has no artifact, none is remembered.
    let mut registry = place.registry.lock().unwrap();
    (registry.down, registry.referrers) = (None, Some(Vec::new()));
    drop(registry);
    assert_eq!(place.found(), None);
    assert_eq!(found(&offline), None);
}

#[test]
fn a_blob_beside_an_image_that_was_altered_in_the_cache_is_fetched_again() {
    let place = Place::new(true);
    place.push(b"good", "2026-01-02T00:00:00Z");
    assert_eq!(place.found().as_deref(), Some(&b"good"[..]));
    let offline = RemoteOptions {
        offline: true,
        ..place.options()
    };
    let dir = place.cache.path().join("v1/indexes");
    let mut altered = 0;
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
            altered += 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(altered >= 2, "the index and the lists");
    assert!(place.open(&offline).named_index().is_none());
    assert_eq!(place.found().as_deref(), Some(&b"good"[..]));
    let image = place.open(&offline);
    assert_eq!(image.named_index().map(|it| &**it), Some(&b"good"[..]));
}
