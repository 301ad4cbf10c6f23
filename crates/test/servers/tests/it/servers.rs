//! The servers start, accept and refuse the right clients, and are gone when dropped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forerun_testkit::temp_dir;
use forerun_testkit_servers::{Auth, DockerRegistry, Nginx, NginxOptions, S3Server};

/// Returns status line, head and body of an answer.
fn get(authority: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(authority).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// `tester:open-sesame`.
const BASIC: &str = "Authorization: Basic dGVzdGVyOm9wZW4tc2VzYW1l\r\n";

#[test]
fn nginx_serves_ranges() {
    let dir = temp_dir("files");
    std::fs::write(dir.path().join("a"), b"0123456789").unwrap();
    let Some(nginx) = Nginx::serve(dir.path()) else {
        return;
    };
    let url = nginx.url();
    let authority = url.strip_prefix("http://").unwrap();
    let answer = get(authority, "/a", "Range: bytes=2-4\r\n");
    assert!(answer.starts_with("HTTP/1.1 206") && answer.ends_with("\r\n\r\n234"));
    assert!(nginx.ca().is_none());
    drop(nginx);
    assert!(TcpStream::connect(authority).is_err());
}

#[test]
fn nginx_asks_for_a_password() {
    let dir = temp_dir("files");
    std::fs::write(dir.path().join("a"), b"0123456789").unwrap();
    let options = NginxOptions {
        basic_auth: true,
        ..NginxOptions::default()
    };
    let Some(nginx) = Nginx::start(dir.path(), &options) else {
        return;
    };
    let url = nginx.url();
    let authority = url.strip_prefix("http://").unwrap();
    assert!(get(authority, "/a", "").starts_with("HTTP/1.1 401"));
    assert!(get(authority, "/a", BASIC).ends_with("0123456789"));
}

#[test]
fn nginx_speaks_tls() {
    let dir = temp_dir("files");
    std::fs::write(dir.path().join("a"), b"0123456789").unwrap();
    let options = NginxOptions {
        tls: true,
        ..NginxOptions::default()
    };
    let Some(nginx) = Nginx::start(dir.path(), &options) else {
        return;
    };
    assert!(nginx.url().starts_with("https://"));
    let address = nginx.url().replace("https://", "");
    // The certificate is by the authority, for the name and for the address.
    for name in ["-verify_ip=127.0.0.1", "-verify_hostname=localhost"] {
        let (option, value) = name.split_once('=').unwrap();
        let output = std::process::Command::new("openssl")
            .args(["s_client", "-verify_return_error", "-connect", &address])
            .args([option, value, "-CAfile"])
            .arg(nginx.ca().unwrap())
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Verify return code: 0 (ok)"), "{text}");
    }
}

#[test]
fn a_registry_lets_in_whom_it_should() {
    for auth in [Auth::None, Auth::Basic] {
        let Some(registry) = DockerRegistry::start(auth) else {
            return;
        };
        assert_eq!(registry.url(), format!("http://{}", registry.authority()));
        let open = get(&registry.authority(), "/v2/", "");
        let expected = match auth {
            Auth::None => "HTTP/1.1 200",
            Auth::Basic | Auth::Token => "HTTP/1.1 401",
        };
        assert!(open.starts_with(expected), "{open}");
        let known = get(&registry.authority(), "/v2/", BASIC);
        assert!(known.starts_with("HTTP/1.1 200"), "{known}");
    }
}

#[test]
fn a_registry_takes_tokens_of_its_service() {
    let Some(registry) = DockerRegistry::start(Auth::Token) else {
        return;
    };
    let path = "/v2/some/repo/tags/list";
    let refused = get(&registry.authority(), path, "");
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let realm = between(&refused, "realm=\"http://", "\"");
    let (service, place) = realm.split_once('/').unwrap();
    let query = "service=test-registry&scope=repository%3Asome/repo:pull";
    let wrong = get(
        service,
        &format!("/{place}?{query}"),
        "Authorization: Basic eDp5\r\n",
    );
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    let given = get(service, &format!("/{place}?{query}"), "");
    let token = between(&given, "\"token\":\"", "\"");
    assert_eq!(registry.tokens_given(), 1);
    // Let in, to a repository that is not there.
    let header = format!("Authorization: Bearer {token}\r\n");
    let answer = get(&registry.authority(), path, &header);
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    // And to no other.
    let other = get(&registry.authority(), "/v2/other/repo/tags/list", &header);
    assert!(other.starts_with("HTTP/1.1 401"), "{other}");
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap();
    rest.split_once(after).unwrap().0
}

#[test]
fn an_object_store_checks_signatures() {
    let Some(s3) = S3Server::start() else {
        return;
    };
    s3.put("some/object", b"0123456789");
    let endpoint = s3.endpoint();
    let authority = endpoint.strip_prefix("http://").unwrap();
    let path = format!("/{}/some/object", s3.bucket());
    let refused = get(authority, &path, "");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert_eq!(s3.environment().len(), 4);
}
