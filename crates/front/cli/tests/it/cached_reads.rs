//! Fully cached remote images are read like local files.

use forerun_testkit_servers::Nginx;
use serde_json::Value;

use crate::common::place::{Place, noise};

/// Images of web servers have no digests, so the process hashes each cached chunk at its first use.
/// The pool does so in readahead requests; the reader hashes only the chunks of its own requests.
#[test]
fn chunks_without_digests_are_hashed_ahead_of_the_reader() {
    let place = Place::new();
    let Some(server) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let url = server.url_of("image");
    place.run(&["cache", "prefetch", "-q", &url]).ok();
    let bytes = 9 << 20;
    let read = |name: &str| {
        let ran = place.run(&["cat", "--stats", "--json", name, "/sub/other"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stdout == noise(bytes), "other bytes from {name}");
        let line = ran
            .stderr
            .lines()
            .find(|line| line.starts_with("{\"stats\""));
        let stats: Value = serde_json::from_str(line.unwrap()).unwrap();
        let count = |name: &str| stats["stats"][name].as_u64().unwrap();
        let fetched = ran
            .remotes()
            .iter()
            .map(|of| of["requests"].as_u64().unwrap())
            .sum::<u64>();
        assert_eq!(fetched, 0, "{}", ran.stderr);
        (count("readahead_bytes"), count("source_bytes"))
    };
    for name in ["image", &url] {
        let (ahead, all) = read(name);
        assert!(ahead * 8 > all * 7, "{name}: {ahead} of {all}");
        assert!(all < (bytes as u64) * 9 / 8, "{name}: {all}");
    }
}
