//! Maps of remote images: the figures equal those of the image as a file, and only chunks with
//! metadata are fetched.

use std::fs;

use forerun_testkit_servers::{Auth, DockerRegistry, Nginx, S3Server};
use serde_json::Value;

use crate::common::browser::Browser;
use crate::common::place::{Place, name_at};
use crate::common::{command, ran, sum_of};

const CHUNK: u64 = 64 << 10;

/// Images of the tree, and the most chunks of each that contain metadata: superblock and tables;
/// headers of five nodes and the superblock; inodes and directories, which are adjacent; boot
/// region, FAT, bitmap, up-case table and two directories.
const IMAGES: [(&str, u64); 4] = [("squashfs", 2), ("romfs", 6), ("erofs", 2), ("exfat", 6)];

/// Maps a remote image with an empty cache. Returns the figures and the number of fetched bytes.
fn map_cold(place: &Place, name: &str, environment: &[(&str, String)]) -> (Value, u64) {
    let _there_may_be_none = fs::remove_dir_all(place.path("cache"));
    let mut command = place.command(&["map", "--json", "--stats", name]);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let ran = ran(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
    let remotes = ran.remotes();
    assert_eq!(remotes.len(), 1, "{}", ran.stderr);
    assert_eq!(sum_of(&remotes, "refetched_bytes"), 0);
    (ran.json(), sum_of(&remotes, "local_bytes"))
}

/// Asserts that a map equals that of the image as a file, and that only chunks with metadata were
/// fetched.
#[track_caller]
fn assert_mapped(
    place: &Place,
    image: &str,
    chunks: u64,
    name: &str,
    environment: &[(&str, String)],
) {
    let expected = place.run(&["map", "--json", image]).ok().json();
    let (map, fetched) = map_cold(place, name, environment);
    assert_eq!(map, expected, "{name}");
    assert!(
        fetched > 0 && fetched <= chunks * CHUNK,
        "{name}: {fetched} bytes"
    );
}

#[test]
fn a_map_of_an_image_at_a_web_server_fetches_metadata_only() {
    let place = Place::new();
    let Some(server) = Nginx::serve(place.dir.path()) else {
        return;
    };
    for (format, chunks) in IMAGES {
        place
            .run(&["pack", "-q", "--format", format, "tree", format])
            .ok();
        assert_mapped(&place, format, chunks, &server.url_of(format), &[]);
    }
    // An explicit option is followed.
    let url = server.url_of("squashfs");
    fs::remove_dir_all(place.path("cache")).unwrap();
    let ahead = place.run(&[
        "map",
        "-q",
        "--stats",
        "--json",
        "--fetch-ahead",
        "async",
        &url,
    ]);
    assert!(sum_of(&ahead.remotes(), "local_bytes") > 2 * CHUNK);
}

#[test]
fn a_map_of_an_image_in_a_registry_or_an_object_store_fetches_metadata_only() {
    let place = Place::new();
    place
        .run(&["pack", "-q", "--format", "squashfs", "tree", "squashfs"])
        .ok();
    if let Some(registry) = DockerRegistry::start(Auth::None) {
        let name = name_at(&registry, "1");
        place.run(&["push", "-q", "squashfs", &name]).ok();
        // With a table of digests, chunks are larger.
        let expected = place.run(&["map", "--json", "squashfs"]).ok().json();
        let (map, fetched) = map_cold(&place, &name, &[]);
        assert_eq!(map, expected);
        assert!(fetched > 0 && fetched * 4 < 12 << 20, "{fetched}");
    }
    if let Some(store) = S3Server::start() {
        store.put("a/squashfs", &fs::read(place.path("squashfs")).unwrap());
        let name = format!("s3://{}/a/squashfs", store.bucket());
        assert_mapped(&place, "squashfs", 2, &name, &store.environment());
    }
}

#[test]
fn a_page_with_the_map_of_an_image_at_a_server_has_no_secrets_in_its_title() {
    let place = Place::new();
    let (Some(server), Some(browser)) = (Nginx::serve(place.dir.path()), Browser::new()) else {
        return;
    };
    let url = server.url_of("image");
    let name = format!("{url}?token=s3cr3t");
    place.run(&["map", "--svg", "map.svg", &name]).ok();
    place.run(&["map", "--html", "map.html", &name]).ok();
    let map = place.run(&["map", "--json", "image"]).ok().json();
    for file in ["map.svg", "map.html"] {
        let text = fs::read_to_string(place.path(file)).unwrap();
        assert!(text.contains(&url), "{file}");
        assert!(!text.contains("s3cr3t"), "{file}");
    }
    let told = browser.run(
        &place.path("map.html"),
        r#"return { title: document.querySelector("h1").textContent, figures: rows("figures") };"#,
    );
    assert_eq!(told["title"], format!("Map of {url}"));
    for kind in map["kinds"].as_array().unwrap() {
        let name = kind["kind"].as_str().unwrap();
        assert_eq!(told["figures"][name][1], kind["bytes"], "{name}");
    }
}

#[test]
fn offline_a_map_is_made_of_what_the_cache_has() {
    let place = Place::new();
    let Some(server) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let url = server.url_of("image");
    let refused = place.run(&["map", "--offline", &url]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let map = place.run(&["map", "--json", &url]).ok();
    let again = place.run(&["map", "--json", "--offline", &url]).ok();
    assert_eq!(map.stdout, again.stdout);
    let none = ran(command(&["map", &format!("{url}-none")]).output().unwrap());
    assert_eq!(none.code, Some(4), "{}", none.stderr);
}
