//! Images in an S3-compatible object store that checks signatures.
//!
//! Credentials come from the environment, which a test must not change for other tests. So each
//! test starts itself again as a second process with the variables set, and that process reads the
//! image.

use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use forerun_io::ReadAt;
use forerun_testkit::temp_dir;
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy};
use forerun_testkit_servers::{Nginx, NginxOptions, S3Server};

use crate::support::{self, impatient, noise, options, read, try_open};

const LEN: usize = 1_000_001;
/// Set in the second process of a test.
const SECOND: &str = "FORERUN_TEST_SECOND";

/// Returns whether this is the second process of a test.
fn is_second() -> bool {
    std::env::var_os(SECOND).is_some()
}

/// Runs the test `name` of this file in a second process with these variables.
fn again(name: &str, variables: &[(&str, String)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("s3::{name}"), "--nocapture"]);
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT",
        "AWS_ENDPOINT_URL_S3",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
    ] {
        command.env_remove(name);
    }
    command.env(SECOND, "1");
    let output = command.envs(variables.iter().cloned()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn an_object_is_read_on_demand() {
    if is_second() {
        let bytes = noise(LEN, 1);
        let cache = temp_dir("cache");
        let image = try_open("s3://images/dir/a b+c.img", &options(cache.path())).unwrap();
        assert_eq!(image.len(), LEN as u64);
        for (at, len) in [(LEN - 1, 1), (65_535, 2), (0, LEN)] {
            read(&image, &bytes, at, len);
        }
        assert!(image.wait_complete(support::PATIENT));
        let error = try_open("s3://images/none", &options(cache.path())).unwrap_err();
        assert!(error.contains("not found"), "{error}");
        return;
    }
    let Some(s3) = S3Server::start() else {
        return;
    };
    // This name must be escaped in URLs, and the escaped form must be signed.
    s3.put("dir/a b+c.img", &noise(LEN, 1));
    let proxy = FaultProxy::start(&s3.endpoint());
    let mut variables = s3.environment();
    for (name, value) in &mut variables {
        if *name == "AWS_ENDPOINT_URL" {
            *value = proxy.url();
        }
    }
    again("an_object_is_read_on_demand", &variables);
    assert_eq!(proxy.log().all_sent_twice(), 0);
    let signed = |request: &forerun_testkit_servers::fault_proxy::Exchange| {
        let header = request.header("authorization").unwrap_or_default();
        header.starts_with("AWS4-HMAC-SHA256") || request.query.contains("X-Amz-Signature")
    };
    assert!(proxy.log().entries.iter().all(signed));
}

#[test]
fn the_wrong_key_is_refused_and_not_told() {
    const WRONG: &str = "not-the-secret-key";
    if is_second() {
        let cache = temp_dir("cache");
        let error = try_open("s3://images/image", &options(cache.path())).unwrap_err();
        assert!(error.contains("403") || error.contains("denied"), "{error}");
        assert!(!error.contains(WRONG), "{error}");
        return;
    }
    let Some(s3) = S3Server::start() else {
        return;
    };
    s3.put("image", &noise(1000, 1));
    let mut variables = s3.environment();
    for (name, value) in &mut variables {
        if *name == "AWS_SECRET_ACCESS_KEY" {
            *value = WRONG.to_string();
        }
    }
    again("the_wrong_key_is_refused_and_not_told", &variables);
}

/// A server that records requests and never answers.
struct Listener {
    address: String,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Listener {
    fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let notes = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                let mut bytes = [0; 4096];
                let got = stream.unwrap().read(&mut bytes).unwrap();
                notes.lock().unwrap().extend_from_slice(&bytes[..got]);
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }
}

#[test]
fn session_tokens_follow_no_redirect() {
    if is_second() {
        let cache = temp_dir("cache");
        let error = try_open("s3://images/image", &options(cache.path())).unwrap_err();
        assert!(error.contains("redirects of object stores"), "{error}");
        return;
    }
    let Some(s3) = S3Server::start() else {
        return;
    };
    s3.put("image", &noise(1000, 1));
    let elsewhere = Listener::start();
    let location = format!("http://{}/images/image", elsewhere.address);
    let proxy = FaultProxy::start(&s3.endpoint());
    proxy.faults(move |_| {
        let location = location.clone();
        Some(Fault::Redirect { location })
    });
    let mut variables = s3.environment();
    for (name, value) in &mut variables {
        if *name == "AWS_ENDPOINT_URL" {
            *value = proxy.url();
        }
    }
    variables.push(("AWS_SESSION_TOKEN", "the-session-token".to_owned()));
    again("session_tokens_follow_no_redirect", &variables);
    assert!(!proxy.log().entries.is_empty(), "the store was asked");
    assert_eq!(elsewhere.heard(), "", "nothing goes where the store points");
}

#[test]
fn a_store_without_tls_needs_leave() {
    if is_second() {
        let cache = temp_dir("cache");
        let error = try_open("s3://images/image", &options(cache.path())).unwrap_err();
        assert!(error.contains("--plain-http 192.0.2.1"), "{error}");
        let mut options = options(cache.path());
        options.registry.insecure = vec!["192.0.2.1".to_owned()];
        options.timeout = std::time::Duration::from_millis(100);
        options.retries = 0;
        let error = try_open("s3://images/image", &options).unwrap_err();
        assert!(!error.contains("--plain-http"), "{error}");
        return;
    }
    // A network reserved for documentation, without servers.
    let endpoint = "http://192.0.2.1:9000".to_owned();
    let key = |name| (name, "key".to_owned());
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint),
        key("AWS_ACCESS_KEY_ID"),
        key("AWS_SECRET_ACCESS_KEY"),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    again("a_store_without_tls_needs_leave", &variables);
}

#[test]
fn no_proxy_is_asked_for_servers_on_this_machine() {
    let url_variable = "FORERUN_TEST_URL";
    if is_second() {
        let url = std::env::var(url_variable).unwrap();
        let cache = temp_dir("cache");
        let image = try_open(&url, &options(cache.path())).unwrap();
        read(&image, &noise(1000, 1), 0, 1000);
        // Other hosts are contacted through the proxy.
        let mut options = impatient(options(cache.path()));
        options.registry.insecure = vec!["192.0.2.1".to_owned()];
        options.retries = 0;
        let _nothing_is_answered = try_open("http://192.0.2.1/outside", &options);
        return;
    }
    let dir = temp_dir("served");
    std::fs::write(dir.path().join("image"), noise(1000, 1)).unwrap();
    let Some(nginx) = Nginx::start(dir.path(), &NginxOptions::default()) else {
        return;
    };
    let proxy = Listener::start();
    let address = format!("http://user:password@{}", proxy.address);
    let with_password = nginx
        .url_of("image")
        .replace("http://", "http://name:secret@");
    let variables = [
        ("HTTP_PROXY", address.clone()),
        ("ALL_PROXY", address),
        ("NO_PROXY", "example.org".to_owned()),
        (url_variable, with_password),
    ];
    again("no_proxy_is_asked_for_servers_on_this_machine", &variables);
    let heard = proxy.heard();
    assert!(heard.contains("192.0.2.1/outside"), "{heard}");
    assert!(!heard.contains("127.0.0.1"), "{heard}");
}

fn credentials(home: &Path, key: &str, secret: &str) {
    let text = format!("[work]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n");
    std::fs::write(home.join(".aws/credentials"), text).unwrap();
}

#[test]
fn profiles_are_read_and_read_again() {
    const NAME: &str = "profiles_are_read_and_read_again";
    if is_second() {
        let bytes = noise(LEN, 2);
        let cache = temp_dir("cache");
        let mut options = options(cache.path());
        options.readahead = forerun_remote::Readahead::Off;
        let image = try_open("s3://images/image", &options).unwrap();
        read(&image, &bytes, 0, 1000);
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let right = std::fs::read_to_string(home.join(".aws/credentials")).unwrap();
        // New valid credentials are used; invalid ones change nothing.
        credentials(&home, "nobody", "nothing");
        let error = image.reopen(&options).unwrap_err().to_string();
        assert!(error.contains("denied"), "{error}");
        read(&image, &bytes, 200_000, 1000);
        std::fs::write(home.join(".aws/credentials"), right).unwrap();
        image.reopen(&options).unwrap();
        image.reload();
        read(&image, &bytes, 0, LEN);
        return;
    }
    let Some(s3) = S3Server::start() else {
        return;
    };
    s3.put("image", &noise(LEN, 2));
    let home = temp_dir("home");
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    credentials(home.path(), s3.access_key(), s3.secret_key());
    let config = format!(
        "[profile work]\nregion = {}\nendpoint_url = {}\n[profile sso]\nsso_session = x\n\
         region = r\n",
        s3.region(),
        s3.endpoint()
    );
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    let home = ("HOME", home.path().display().to_string());
    again(NAME, &[home.clone(), ("AWS_PROFILE", "work".to_string())]);
    for (profile, told) in [("none", "no profile"), ("sso", "sso_session")] {
        let variables = [home.clone(), ("AWS_PROFILE", profile.to_string())];
        let told = ("TOLD", told.to_string());
        again(REFUSED, &[&variables[..], &[told]].concat());
    }
}

const REFUSED: &str = "a_profile_that_is_no_use_is_refused";

/// Checks, when the test above runs it in another process, that the profile is refused.
#[test]
fn a_profile_that_is_no_use_is_refused() {
    if is_second() {
        let cache = temp_dir("cache");
        let error = try_open("s3://images/image", &options(cache.path())).unwrap_err();
        assert!(error.contains(&std::env::var("TOLD").unwrap()), "{error}");
    }
}
