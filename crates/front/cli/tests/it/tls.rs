//! Servers with TLS, whose certificate is from an authority that the system does not know.

use std::fs;
use std::path::Path;

use forerun_testkit_servers::{Auth, DockerRegistry, Nginx, NginxOptions, Tunnel};

use crate::common::place::Place;
use crate::common::{Ran, ran};

const NOT_TRUSTED: &str = "its certificate is not trusted: its issuer is not known";

/// Runs with the authority, through the variable that OpenSSL and similar libraries read.
fn trusting(place: &Place, ca: &Path, args: &[&str]) -> Ran {
    let mut command = place.command(args);
    ran(command.env("SSL_CERT_FILE", ca).output().unwrap())
}

#[test]
fn a_web_server_is_trusted_by_its_authority() {
    let place = Place::new();
    let options = NginxOptions {
        tls: true,
        ..NginxOptions::default()
    };
    let Some(nginx) = Nginx::start(place.dir.path(), &options) else {
        return;
    };
    let (url, ca) = (nginx.url_of("image"), nginx.ca().unwrap());
    let refused = place.run(&["ls", &url]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains(NOT_TRUSTED), "{}", refused.stderr);
    assert!(refused.stderr.contains("--ca-file"), "{}", refused.stderr);
    let listing = trusting(&place, ca, &["ls", &url]).ok();
    assert_eq!(listing.stdout, place.run(&["ls", "image"]).ok().stdout);
    let ca_file = ca.to_str().unwrap();
    place
        .run(&["pull", "-q", "--ca-file", ca_file, &url, "copy"])
        .ok();
    assert!(fs::read(place.path("copy")).unwrap() == fs::read(place.path("image")).unwrap());
    // Cached chunks do not excuse a server with a wrong certificate.
    let refused = place.run(&["ls", &url]);
    assert!(refused.stderr.contains(NOT_TRUSTED), "{}", refused.stderr);
}

#[test]
fn a_registry_is_trusted_by_its_authority() {
    const HOST: &str = "registry.example";
    let Some(registry) = DockerRegistry::start_tls(Auth::None, HOST) else {
        return;
    };
    let place = Place::new();
    // No resolver knows the host, but the proxy does.
    let tunnel = Tunnel::start(&registry.authority());
    let (name, ca) = (format!("oci://{HOST}/a/app:1"), registry.ca().unwrap());
    let run = |ca: Option<&Path>, args: &[&str]| {
        let mut command = place.command(args);
        command.env("HTTPS_PROXY", tunnel.url());
        if let Some(ca) = ca {
            command.env("SSL_CERT_FILE", ca);
        }
        ran(command.output().unwrap())
    };
    for args in [&["push", "image", &name][..], &["ls", &name]] {
        let refused = run(None, args);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(refused.stderr.contains(NOT_TRUSTED), "{}", refused.stderr);
    }
    run(Some(ca), &["push", "-q", "image", &name]).ok();
    let listing = run(Some(ca), &["ls", &name]).ok();
    assert_eq!(listing.stdout, place.run(&["ls", "image"]).ok().stdout);
    run(Some(ca), &["pull", "-q", &name, "copy"]).ok();
    assert!(fs::read(place.path("copy")).unwrap() == fs::read(place.path("image")).unwrap());
    assert!(tunnel.connections() > 3);
    // The certificate is for that name only.
    let other = name.replace(HOST, "other.example");
    let refused = run(Some(ca), &["ls", &other]);
    assert_eq!(refused.code, Some(4));
    let told = "its certificate is not trusted: ";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
    // A user may trust the authority with `--ca-file` alone.
    let ca_file = ca.to_str().unwrap();
    run(None, &["ls", "--ca-file", ca_file, &name]).ok();
}
