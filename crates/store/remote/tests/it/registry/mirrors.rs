//! Mirrors of a registry.

use forerun_remote::pull::pull;
use forerun_remote::{Mirror, RegistryOptions};
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy, Network};
use forerun_testkit_servers::{Auth, DockerRegistry};

use super::fake::Fake;
use super::push_pull::pull_options;
use super::store::Store;
use super::support::{PART, image, name, open, options, push_as, registry};

fn mirrored(registry: &str, mirrors: &[String]) -> RegistryOptions {
    let mirror = |location: &String| Mirror {
        registry: registry.to_string(),
        location: location.clone(),
    };
    RegistryOptions {
        mirrors: mirrors.iter().map(mirror).collect(),
        attempts: 2,
        ..options()
    }
}

#[test]
fn a_mirror_is_asked_first_and_replaced_when_it_fails() {
    let Some(server) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let mirror = FaultProxy::start(&server.url());
    let image = image(6 * PART as usize);
    let tag = name(&server.authority(), "a:v1");
    push_as(&registry(options()), &image, &tag).unwrap();
    let registry = registry(mirrored(&server.authority(), &[mirror.url()]));
    let dir = tempfile::tempdir().unwrap();
    let all = |what: &str| {
        let output = dir.path().join(what);
        let layout = open(&registry, &tag).unwrap();
        assert_eq!(layout.parts[0].blob.mirrors.len(), 2);
        pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
        assert!(std::fs::read(&output).unwrap() == image, "{what}");
    };
    all("through the mirror");
    let of_parts = mirror.log().sent();
    // The mirror sends everything except the zeros, which the table identifies.
    assert!(
        of_parts >= image.len() as u64 - 3 * PART - PART,
        "{of_parts}"
    );
    mirror.faults(|_| Some(Fault::WrongBytes { offset: 7, len: 1 }));
    all("the mirror lies");
    mirror.faults(|_| {
        Some(Fault::Status {
            code: 500,
            retry_after: None,
        })
    });
    all("the mirror is broken");
    mirror.set_network(Network::Refused);
    all("the mirror is gone");
    // Nothing is written to a mirror.
    mirror.set_network(Network::Up);
    mirror.clear_faults();
    mirror.forget();
    push_as(&registry, &image, &name(&server.authority(), "a:v2")).unwrap();
    assert_eq!(mirror.log().requests(), 0);
}

#[test]
fn a_mirror_may_have_only_some_of_the_blobs() {
    let image = image(4 * PART as usize);
    let full = Store::artifact(&image, |_| (), |_| ());
    let mut partial = full.clone();
    for part in image.chunks(PART as usize).take(2) {
        partial.blobs.remove(&forerun_cache::Digest::of(part));
    }
    let server = Fake::start(move |request| full.answer(request));
    let mirror = Fake::start(move |request| partial.answer(request));
    let location = format!("http://{}/below/a", mirror.authority());
    let registry = registry(mirrored(&server.authority(), &[location]));
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("image");
    let layout = open(&registry, &name(&server.authority(), "repo:v1")).unwrap();
    pull(&layout, &output, &pull_options(), &mut |_| ()).unwrap();
    assert!(std::fs::read(&output).unwrap() == image);
    assert!(
        mirror
            .log()
            .iter()
            .all(|r| r.path.starts_with("/v2/below/a/repo/"))
    );
    assert!(!server.log().is_empty());
}
