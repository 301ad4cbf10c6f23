//! Which server gets which credentials: tokens, redirects, realms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forerun_remote::RegistryOptions;
use forerun_remote::{RemoteError, runtime};
use forerun_testkit_servers::PASSWORD;

use super::fake::{Answer, Fake, Request};
use super::store::{Store, ranged};
use super::support::{PART, auth_file, image, logged_in, name, open, options, read, registry};

/// A registry that requires the newest token of `tokens`, and its token server.
struct Guarded {
    registry: Fake,
    tokens: Fake,
    /// Number of the newest token. Older tokens are refused.
    newest: Arc<AtomicUsize>,
}

fn guarded(store: Store, life: u64) -> Guarded {
    let newest = Arc::new(AtomicUsize::new(0));
    let given = Arc::clone(&newest);
    let tokens = Fake::start(move |_| {
        let number = given.fetch_add(1, Ordering::SeqCst) + 1;
        Answer::new(
            200,
            format!(r#"{{"token":"secret-{number}","expires_in":{life}}}"#),
        )
    });
    let realm = format!("http://{}/token?x=1", tokens.authority());
    let wanted = Arc::clone(&newest);
    let registry = Fake::start(move |request| {
        let expected = format!("Bearer secret-{}", wanted.load(Ordering::SeqCst));
        if request.header("authorization") == Some(&expected) {
            return store.answer(request);
        }
        let challenge =
            format!(r#"Bearer realm="{realm}",service="s",scope="repository:other:pull""#);
        Answer::new(401, "").with("WWW-Authenticate", challenge)
    });
    Guarded {
        registry,
        tokens,
        newest,
    }
}

#[test]
fn expired_tokens_are_replaced_once_for_all_waiting_requests() {
    let image = image(32 * PART as usize);
    let server = guarded(Store::artifact(&image, |_| (), |_| ()), 300);
    let registry = registry(options());
    let layout = open(
        &registry,
        &name(&server.registry.authority(), "some/repo:v1"),
    )
    .unwrap();
    assert_eq!(server.tokens.log().len(), 1);
    let query = &server.tokens.log()[0].query;
    assert_eq!(
        query, "x=1&service=s&scope=repository%3Asome%2Frepo%3Apull&client_id=forerun",
        "what we need is asked for, not what the challenge says"
    );
    // From now on the server requires another token, which all requests notice at the same time.
    server.newest.fetch_add(1, Ordering::SeqCst);
    let before = server.tokens.log().len();
    runtime::wait_for(async {
        let fetches = layout
            .parts
            .iter()
            .map(|part| part.blob.mirrors[0].fetch(0..100, &part.blob.description));
        for body in futures_util::future::join_all(fetches).await {
            drop(body?);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(server.tokens.log().len() - before, 1);
}

#[test]
fn tokens_at_the_end_of_their_life_are_not_sent() {
    let image = image(4 * PART as usize);
    let server = guarded(Store::artifact(&image, |_| (), |_| ()), 0);
    let registry = registry(options());
    // Tokens with a lifetime of zero: each request gets a new token, and none is refused after the
    // first challenge.
    let layout = open(&registry, &name(&server.registry.authority(), "a:v1")).unwrap();
    read(&layout, 0, 0, 0..10).unwrap();
    let refused = server
        .registry
        .log()
        .iter()
        .filter(|r| r.header("authorization").is_none())
        .count();
    assert_eq!(refused, 1);
}

#[test]
fn tokens_that_do_not_help_are_not_tried_for_ever() {
    let store = Store::default();
    let server = guarded(store, 300);
    // The registry never accepts the token that was issued.
    let newest = Arc::clone(&server.newest);
    let tokens = Fake::start(|_| Answer::new(200, r#"{"token":"stale"}"#));
    let realm = format!("Bearer realm=\"http://{}/\"", tokens.authority());
    let registry_server = Fake::start(move |_| {
        newest.fetch_add(1, Ordering::SeqCst);
        Answer::new(401, "").with("WWW-Authenticate", &realm)
    });
    let registry = registry(options());
    let error = open(&registry, &name(&registry_server.authority(), "a:v1")).unwrap_err();
    assert!(
        matches!(error, RemoteError::Denied { status: 401, .. }),
        "{error}"
    );
    assert_eq!(registry_server.log().len(), 2);
    assert!(!error.to_string().contains("stale"), "{error}");
}

#[test]
fn refresh_tokens_are_exchanged() {
    let image = image(PART as usize);
    let server = guarded(Store::artifact(&image, |_| (), |_| ()), 300);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("auth.json");
    let authority = server.registry.authority();
    std::fs::write(
        &file,
        format!(r#"{{"auths":{{"{authority}":{{"identitytoken":"long lived"}}}}}}"#),
    )
    .unwrap();
    let registry = registry(RegistryOptions {
        auth_files: Some(vec![file]),
        ..options()
    });
    open(&registry, &name(&authority, "a:v1")).unwrap();
    let asked = &server.tokens.log()[0];
    assert_eq!(asked.method, "POST");
    assert_eq!(asked.header("authorization"), None);
    let form = String::from_utf8(asked.body.clone()).unwrap();
    assert_eq!(
        form,
        "grant_type=refresh_token&service=s&client_id=forerun&scope=repository%3Aa%3Apull&\
         refresh_token=long+lived"
    );
}

#[test]
fn a_realm_elsewhere_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for realm in [
        "http://token.example.invalid/",
        "file:///etc/passwd",
        "nonsense",
    ] {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let server =
            Fake::start(move |_| Answer::new(401, "").with("WWW-Authenticate", &challenge));
        let registry = registry(logged_in(dir.path(), &server.authority()));
        let error = open(&registry, &name(&server.authority(), "a:v1")).unwrap_err();
        assert!(matches!(error, RemoteError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("does not contact"), "{error}");
    }
}

#[test]
fn passwords_go_to_the_server_they_are_for() {
    let dir = tempfile::tempdir().unwrap();
    let server = Fake::start(|_| Answer::new(401, "").with("WWW-Authenticate", "Basic realm=x"));
    let other = auth_file(dir.path(), "127.0.0.1:1", PASSWORD);
    let registry = registry(RegistryOptions {
        auth_files: Some(vec![other]),
        ..options()
    });
    let error = open(&registry, &name(&server.authority(), "a:v1")).unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
    assert!(
        server
            .log()
            .iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[test]
fn redirects_lead_without_credentials_and_are_remembered() {
    let image = image(3 * PART as usize);
    let store = Store::artifact(&image, |_| (), |_| ());
    let dir = tempfile::tempdir().unwrap();
    let blobs = store.blobs.clone();
    let runs_out = Arc::new(AtomicBool::new(false));
    let run_out = Arc::clone(&runs_out);
    // The signature is valid until the test revokes it; then another one is.
    let cdn = Fake::start(move |request: &Request| {
        let good = if run_out.load(Ordering::SeqCst) {
            "signature=2"
        } else {
            "signature=1"
        };
        let digest = request.path.trim_start_matches('/').parse().unwrap();
        if request.query == good {
            ranged(&blobs[&digest], request)
        } else {
            Answer::new(403, "expired")
        }
    });
    let cdn_url = format!("http://{}", cdn.authority());
    let run_out = Arc::clone(&runs_out);
    let server = Fake::start(move |request: &Request| {
        if request.header("authorization").is_none() {
            return Answer::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\"");
        }
        let signature = if run_out.load(Ordering::SeqCst) { 2 } else { 1 };
        match request.path.split_once("/blobs/") {
            Some((_, digest)) => Answer::new(307, "").with(
                "Location",
                format!("{cdn_url}/{digest}?signature={signature}"),
            ),
            None => store.answer(request),
        }
    });
    let registry = registry(logged_in(dir.path(), &server.authority()));
    let layout = open(&registry, &name(&server.authority(), "a:v1")).unwrap();
    let before = (server.log().len(), cdn.log().len());
    for at in [0, 100, 200] {
        let bytes = read(&layout, 1, 0, at..at + 50).unwrap();
        let start = (PART + at) as usize;
        assert!(bytes == image[start..start + 50]);
    }
    // The registry got one request, the store three.
    assert_eq!(
        (server.log().len() - before.0, cdn.log().len() - before.1),
        (1, 3)
    );
    runs_out.store(true, Ordering::SeqCst);
    read(&layout, 1, 0, 0..50).unwrap();
    assert_eq!(
        (server.log().len() - before.0, cdn.log().len() - before.1),
        (2, 5)
    );
    for request in cdn.log() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}

#[test]
fn a_store_that_asks_for_a_password_does_not_get_it() {
    let image = image(PART as usize);
    let store = Store::artifact(&image, |_| (), |_| ());
    let dir = tempfile::tempdir().unwrap();
    let thief = Fake::start(|_| Answer::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\""));
    let location = format!("http://{}/x", thief.authority());
    let server = Fake::start(move |request: &Request| {
        if request.header("authorization").is_none() {
            return Answer::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\"");
        }
        if request.path.contains("/blobs/") {
            Answer::new(302, "").with("Location", &location)
        } else {
            store.answer(request)
        }
    });
    let registry = registry(logged_in(dir.path(), &server.authority()));
    let error = open(&registry, &name(&server.authority(), "a:v1")).unwrap_err();
    assert!(matches!(error, RemoteError::Denied { .. }), "{error}");
    assert!(!thief.log().is_empty());
    assert!(
        thief
            .log()
            .iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[test]
fn redirects_that_go_round_end() {
    let server =
        Fake::start(|request: &Request| Answer::new(307, "").with("Location", &request.path));
    let error = open(&registry(options()), &name(&server.authority(), "a:v1")).unwrap_err();
    assert!(error.to_string().contains("too many redirects"), "{error}");
    assert!(server.log().len() < 10);
}
