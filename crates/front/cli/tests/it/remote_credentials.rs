//! Credentials for remote images: their sources, and places where they must never appear.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use forerun_testkit_servers::{Nginx, NginxOptions, PASSWORD, USER};

use crate::common;
use crate::common::place::Place;

fn with_password(place: &Place) -> Option<Nginx> {
    let options = NginxOptions {
        basic_auth: true,
        ..NginxOptions::default()
    };
    Nginx::start(place.dir.path(), &options)
}

#[test]
fn credentials_are_used_and_never_shown() {
    let place = Place::new();
    let Some(nginx) = with_password(&place) else {
        return;
    };
    let plain = nginx.url_of("image");
    let refused = place.run(&["ls", &plain]);
    assert_eq!(refused.code, Some(4));
    assert!(
        refused
            .stderr
            .contains("access denied (401)\n  hint: log in first"),
        "{}",
        refused.stderr
    );
    let wrong = plain.replace("http://", &format!("http://{USER}:guess@"));
    let refused = place.run(&["ls", &wrong]);
    assert_eq!(refused.code, Some(4));
    assert!(
        refused
            .stderr
            .contains("the server rejected the user or password"),
        "{}",
        refused.stderr
    );
    let url = plain.replace("http://", &format!("http://{USER}:{PASSWORD}@"));
    let listed = place.run(&["ls", &url]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert!(listed.stderr.contains("every user of this machine"));
    assert!(!listed.stderr.contains(PASSWORD), "{}", listed.stderr);
    let mounted = place.mount(&["-v"], &url);
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let status = place.run(&["status", "--json"]).ok();
    let log = fs::read_to_string(place.path("log")).unwrap();
    for text in [&shown, status.text(), &log] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    assert!(shown.contains(&plain), "{shown}");
    mounted.end();
    let missing = place.run(&["ls", &url.replace("/image", "/missing")]);
    assert_eq!(missing.code, Some(4));
    assert!(missing.stderr.contains("not found") && !missing.stderr.contains(PASSWORD));
}

#[test]
fn the_process_of_a_mount_has_no_password_in_its_arguments_also_after_a_restart() {
    let place = Place::new();
    let Some(nginx) = with_password(&place) else {
        return;
    };
    let plain = nginx.url_of("image");
    let secret = plain.replace("http://", &format!("http://{USER}:{PASSWORD}@")) + "?signature=abc";
    let mirror = format!("--mirror={secret}");
    let args = ["mount", "--fetch-ahead", "off", &mirror, &secret, "mnt"];
    let mounted = place.run(&args);
    assert_eq!(mounted.code, Some(0), "{}", mounted.stderr);
    let served_by = || {
        let status = place.run(&["status", "--json"]).ok().mounts();
        let pid = status[0]["pid"].as_u64().unwrap();
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(
                !text.contains(PASSWORD) && !text.contains("signature"),
                "{text}"
            );
            assert!(file == "environ" || text.contains(&plain), "{text}");
        }
        // The pipe is not kept open either.
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let pipes = links.filter(|link| link.to_string_lossy().starts_with("pipe:"));
        (pid, pipes.count())
    };
    let (first, pipes) = served_by();
    assert_eq!(fs::read(place.path("mnt/small")).unwrap(), b"small\n");
    for file in ["mnt/big", "mnt/sub/other"] {
        let restarted = place.run(&["restart", "mnt"]);
        assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
        let (next, now) = served_by();
        assert!(next != first && now <= pipes, "{pipes} pipes, then {now}");
        // The new process, which has the password, fetches the rest.
        assert!(fs::read(place.path(file)).unwrap().len() > 1 << 20);
    }
    place.run(&["umount", "mnt"]).ok();
}

#[test]
fn every_command_refuses_plain_http_to_other_machines_in_the_same_way() {
    let place = Place::new();
    // A network reserved for documentation, without servers. It is never contacted.
    let url = "http://192.0.2.1/image";
    let mirror = "--mirror=http://192.0.2.1/image";
    for args in [
        &["ls", url][..],
        &["cat", url, "/small"],
        &["info", url],
        &["extract", url, "out"],
        &["tar", url, "out.tar"],
        &["check", url],
        &["dump", url],
        &["diff", url, "tree"],
        &["convert", "--format", "erofs", url, "out.erofs"],
        &["mount", url, "mnt"],
        &["mount", "-f", url, "mnt"],
        &["mount", "--via", "auto", url, "mnt"],
        &["pull", url, "pulled"],
        &["cache", "prefetch", url],
        &["ls", mirror, "https://127.0.0.1:1/image"],
        &["ls", mirror, "oci://127.0.0.1:1/a/b:1"],
        &["mount", mirror, "oci://127.0.0.1:1/a/b:1", "mnt"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        let hint = "--plain-http 192.0.2.1 allows it";
        assert!(ran.stderr.contains(hint), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn passwords_come_from_netrc_and_credentials_files() {
    let place = Place::new();
    let Some(nginx) = with_password(&place) else {
        return;
    };
    let url = nginx.url_of("image");
    let write = |name: &str, text: &str, mode| {
        fs::write(place.path(name), text).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let home = |args: &[&str]| {
        let mut command = place.command(args);
        let home = place.path("home");
        common::ran(command.env("HOME", home).output().unwrap())
    };
    fs::create_dir(place.path("home")).unwrap();
    assert_eq!(home(&["ls", &url]).code, Some(4));
    let netrc = format!("machine 127.0.0.1 login {USER} password {PASSWORD}\n");
    write("home/.netrc", &netrc, 0o600);
    home(&["ls", &url]).ok();
    home(&["pull", "-q", &url, "pulled"]).ok();
    home(&["mount", &url, "mnt"]).ok();
    assert_eq!(fs::read(place.path("mnt/small")).unwrap(), b"small\n");
    home(&["umount", "mnt"]).ok();
    write("home/.netrc", &netrc, 0o644);
    let open_to_all = home(&["ls", &url]);
    assert_eq!(open_to_all.code, Some(4));
    assert!(
        open_to_all.stderr.contains("chmod 600"),
        "{}",
        open_to_all.stderr
    );
    write("mine", &netrc, 0o600);
    home(&["cat", "--netrc-file", "mine", &url, "/small"]);
    let store = format!(
        "{}\n",
        nginx
            .url()
            .replace("http://", &format!("http://{USER}:{PASSWORD}@"))
    );
    write("store", &store, 0o600);
    fs::remove_file(place.path("home/.netrc")).unwrap();
    home(&["ls", "--credentials-file", "store", &url]).ok();
    write("store", &store, 0o640);
    let refused = home(&["ls", "--credentials-file", "store", &url]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(!refused.stderr.contains(PASSWORD), "{}", refused.stderr);
}
