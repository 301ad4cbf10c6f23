//! Images in an S3-compatible object store that checks signatures.
//!
//! Credentials come from the environment, which a test may not change under the others: each test
//! starts itself again, with the variables set, and that second one reads.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod support;

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
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT",
        "AWS_ENDPOINT_URL_S3",
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
