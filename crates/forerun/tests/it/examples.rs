//! The programs in `examples/` do what they say, on an image that one of them makes.

use std::fs;
use std::path::PathBuf;

use forerun::OpenOptions;
use forerun::unstable::remote::RemoteOptions;
use forerun_testkit::{TempDir, generate, temp_dir};
use forerun_testkit_servers::Nginx;

// The tests call `run` of each program; their `main` is unused here.
#[allow(dead_code)]
#[path = "../../examples/cat.rs"]
mod cat;
#[allow(dead_code)]
#[path = "../../examples/check.rs"]
mod check;
#[allow(dead_code)]
#[path = "../../examples/du.rs"]
mod du;
#[allow(dead_code)]
#[path = "../../examples/extract_one.rs"]
mod extract_one;
#[allow(dead_code)]
#[path = "../../examples/find.rs"]
mod find;
#[allow(dead_code)]
#[path = "../../examples/from_web.rs"]
mod from_web;
#[allow(dead_code)]
#[path = "../../examples/ls.rs"]
mod ls;
#[allow(dead_code)]
#[path = "../../examples/pack.rs"]
mod pack;
#[allow(dead_code)]
#[path = "../../examples/read_at.rs"]
mod read_at;
#[allow(dead_code)]
#[path = "../../examples/tail.rs"]
mod tail;

/// Packs a tree with two files. Returns the directory, the image and the contents of the large
/// file.
fn packed() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = temp_dir("examples");
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("data")).unwrap();
    fs::write(tree.join("motd"), "welcome\n").unwrap();
    let large = generate::bytes(9, 1_000_000);
    fs::write(tree.join("data/large"), &large).unwrap();
    let image = dir.path().join("image.sqsh");
    let len = pack::run(&tree, &image).unwrap();
    assert_eq!(fs::metadata(&image).unwrap().len(), len);
    (dir, image, large)
}

#[test]
fn files_are_printed_whole_and_in_part() {
    let (dir, image, large) = packed();
    let mut out = Vec::new();
    cat::run(&image, "/motd", &mut out).unwrap();
    assert_eq!(out, b"welcome\n");
    out.clear();
    read_at::run((&image, "data/large"), (999_990, 100), &mut out).unwrap();
    assert_eq!(out, large[999_990..]);
    out.clear();
    tail::run(&image, "data/large", 300_000, &mut out).unwrap();
    assert!(out == large[700_000..]);
    let copy = dir.path().join("copy");
    assert_eq!(
        extract_one::run(&image, "/data/large", &copy).unwrap(),
        1_000_000
    );
    assert!(fs::read(&copy).unwrap() == large);
    let error = cat::run(&image, "/none", &mut out).unwrap_err().to_string();
    assert!(
        error.ends_with("image.sqsh: /none: no such file or directory"),
        "{error}"
    );
}

#[test]
fn trees_are_listed_counted_and_searched() {
    let (_dir, image, _) = packed();
    let mut out = Vec::new();
    ls::run(&image, "/", &mut out).unwrap();
    let listed = String::from_utf8(out).unwrap();
    let lines: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!((lines[0][0], lines[0][2]), ("d", "data"));
    assert_eq!(lines[1], ["-", "8", "motd"]);
    let mut out = Vec::new();
    du::run(&image, &mut out).unwrap();
    assert_eq!(out, b"2 files, 1000008 bytes\n");
    let mut out = Vec::new();
    find::run(&image, "arg", &mut out).unwrap();
    assert_eq!(out, b"/data/large\n");
}

#[test]
fn damage_is_found() {
    let (_dir, image, _) = packed();
    let mut out = Vec::new();
    assert_eq!(check::run(&image, &mut out).unwrap(), 0);
    let mut bytes = fs::read(&image).unwrap();
    // Damage the first block of data, whose stream has a checksum.
    bytes[5_000..5_100].fill(0x55);
    fs::write(&image, bytes).unwrap();
    let found = check::run(&image, &mut out).unwrap();
    let report = String::from_utf8(out).unwrap();
    assert_eq!(found, 1, "{report}");
    assert!(
        report.contains("/data/large: damaged squashfs image"),
        "{report}"
    );
}

#[test]
fn an_image_at_a_web_server_is_read() {
    let (dir, _, large) = packed();
    let Some(server) = Nginx::serve(dir.path()) else {
        return;
    };
    let mut remote = RemoteOptions::default();
    let cache = temp_dir("examples-cache");
    remote.cache_dir = Some(cache.path().to_path_buf());
    let options = OpenOptions::new().remote(remote);
    let (url, mut out) = (server.url_of("image.sqsh"), Vec::new());
    from_web::run((&url, "/data/large"), &options, &mut out).unwrap();
    assert!(out == large);
    // Errors name the address.
    let error = options.open(&url).unwrap().read("/none").unwrap_err();
    assert_eq!(error.image(), Some(url.as_ref()));
    let missing = server.url_of("none.sqsh");
    let error = options.open(&missing).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    assert_eq!(error.image(), Some(missing.as_ref()));
    assert_eq!(error.to_string(), format!("{missing}: not found"));
}
