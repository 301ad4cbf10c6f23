//! Images in an S3-compatible object store that checks signatures.
//!
//! Credentials come from the environment, which a test may not change under the others: each test
//! starts itself again, with the variables set, and that second one reads.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use forerun_io::ReadAt;
use forerun_testkit::fault_proxy::FaultProxy;
use forerun_testkit::servers::S3Server;
use forerun_testkit::temp_dir;
use support::{noise, options, read, try_open};

const LEN: usize = 1_000_001;
/// Set where the test is the second one.
const SECOND: &str = "FORERUN_TEST_SECOND";

/// The second test: whether this is one.
fn is_second() -> bool {
    std::env::var_os(SECOND).is_some()
}

/// Runs the test `name` again with these variables.
fn again(name: &str, variables: &[(&str, String)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
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
        assert!(image.wait_complete(support::TIMEOUT));
        let error = try_open("s3://images/none", &options(cache.path())).unwrap_err();
        assert!(error.contains("not found"), "{error}");
        return;
    }
    let Some(s3) = S3Server::start() else {
        return;
    };
    // A name that is written otherwise in a URL, and signed as it is written there.
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
    let signed = |request: &forerun_testkit::fault_proxy::Exchange| {
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

/// A profile whose keys are these.
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
        // What is read again counts, and what is wrong changes nothing.
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

/// Run by the test above.
#[test]
fn a_profile_that_is_no_use_is_refused() {
    if is_second() {
        let cache = temp_dir("cache");
        let error = try_open("s3://images/image", &options(cache.path())).unwrap_err();
        assert!(error.contains(&std::env::var("TOLD").unwrap()), "{error}");
    }
}
