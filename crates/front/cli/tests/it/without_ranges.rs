//! Images on web servers that answer range requests with the whole file.

use std::fs;

use forerun_testkit_servers::fault_proxy::{Exchange, FaultProxy, Link};
use forerun_testkit_servers::{Ending, EndlessServer, Nginx, NginxOptions};

use crate::common::place::{Place, noise};
use crate::common::ran;

fn serve(place: &Place) -> Option<(Nginx, FaultProxy)> {
    let options = NginxOptions {
        directives: "max_ranges 0;".to_string(),
        ..NginxOptions::default()
    };
    let nginx = Nginx::start(place.dir.path(), &options)?;
    let proxy = FaultProxy::start(&nginx.url());
    Some((nginx, proxy))
}

fn downloads(proxy: &FaultProxy) -> usize {
    let is_whole = |request: &&Exchange| request.method == "GET" && request.range.is_none();
    proxy.log().of("/image").filter(is_whole).count()
}

#[test]
fn an_image_is_downloaded_once_with_a_note_and_used_by_every_command() {
    let place = Place::new();
    let Some((_nginx, proxy)) = serve(&place) else {
        return;
    };
    let url = proxy.url_of("image");
    let listing = place.run(&["ls", &url]);
    assert_eq!(listing.stdout, place.run(&["ls", "image"]).ok().stdout);
    let note = format!(
        "forerun: {url}: the server does not answer range requests, so the whole file is downloaded first ("
    );
    assert!(listing.stderr.starts_with(&note), "{}", listing.stderr);
    assert_eq!(downloads(&proxy), 1);

    let cat = place.run(&["cat", &url, "/big"]).ok();
    assert!(cat.stdout == noise(3 << 20));
    assert_eq!(cat.stderr, "");
    let mounted = place.mount(&[], &url);
    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    mounted.end();
    assert_eq!(downloads(&proxy), 1);

    place.run(&["pull", "-q", &url, "copy"]).ok();
    assert!(fs::read(place.path("copy")).unwrap() == fs::read(place.path("image")).unwrap());
    assert_eq!(downloads(&proxy), 2);

    drop(proxy);
    let cat = place.run(&["cat", "--offline", "-q", &url, "/big"]).ok();
    assert!(cat.stdout == noise(3 << 20));
}

#[test]
fn an_image_longer_than_the_cache_may_be_is_refused() {
    let place = Place::new();
    let Some((_nginx, proxy)) = serve(&place) else {
        return;
    };
    let url = proxy.url_of("image");
    let refused = place.run(&["ls", "--cache-limit", "1M", &url]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let len = fs::metadata(place.path("image")).unwrap().len();
    let text = format!(
        "so the cache must hold all {len} bytes; its limit is 1048576\n  hint: --cache-limit "
    );
    assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    assert_eq!(downloads(&proxy), 0);
}

#[test]
fn an_image_of_unknown_length_is_downloaded_once_with_a_note() {
    let place = Place::new();
    let bytes = fs::read(place.path("image")).unwrap();
    let server = EndlessServer::start(bytes.clone(), Some("\"1\""), Ending::LastChunk);
    let url = server.url();
    let listing = place.run(&["ls", &url]);
    assert_eq!(listing.stdout, place.run(&["ls", "image"]).ok().stdout);
    let note = format!(
        "forerun: {url}: the server does not answer range requests, so the whole file is downloaded first (the \
         server does not say how long it is)\n"
    );
    assert_eq!(listing.stderr, note);
    let mounted = place.mount(&[], &url);
    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    mounted.end();
    assert_eq!(server.downloads(), 1);
    place.run(&["pull", "-q", &url, "copy"]).ok();
    assert!(fs::read(place.path("copy")).unwrap() == bytes);
    assert_eq!(server.downloads(), 2);

    let small = ["ls", "--cache-dir", "small", "--cache-limit", "1M", &url];
    let refused = place.run(&small);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let text = "it is longer than the cache's limit of 1048576 bytes\n  hint: --cache-limit ";
    assert!(refused.stderr.contains(text), "{}", refused.stderr);
    server.end_with(Ending::Cut);
    let cut = place.run(&["pull", "-q", &url, "cut"]);
    assert_eq!(cut.code, Some(4), "{}", cut.stderr);
    assert!(!place.path("cut").exists());
}

#[test]
fn two_processes_at_once_download_once() {
    let place = Place::new();
    let Some((_nginx, proxy)) = serve(&place) else {
        return;
    };
    proxy.set_link(Link {
        bytes_per_second: Some(16 << 20),
        ..Link::default()
    });
    let url = proxy.url_of("image");
    let start = || {
        let mut command = place.command(&["cat", "-q", &url, "/big"]);
        command.stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let (first, second) = (start(), start());
    for child in [first, second] {
        let done = ran(child.wait_with_output().unwrap()).ok();
        assert!(done.stdout == noise(3 << 20));
    }
    assert_eq!(downloads(&proxy), 1);
}

#[test]
fn a_partition_of_a_file_at_a_server_is_mounted_by_its_number() {
    let place = Place::new();
    let image = fs::read(place.path("image")).unwrap();
    let sectors = u32::try_from(image.len().div_ceil(512)).unwrap();
    let mut disk = vec![0; 1 << 20];
    disk[0x1be + 4] = 0x83;
    disk[0x1be + 8..0x1be + 12].copy_from_slice(&2048_u32.to_le_bytes());
    disk[0x1be + 12..0x1be + 16].copy_from_slice(&sectors.to_le_bytes());
    disk[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(image);
    disk.resize(disk.len().next_multiple_of(512), 0);
    fs::write(place.path("disk"), disk).unwrap();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let url = nginx.url_of("disk");
    let mounted = place.mount(&["--partition", "1"], &url);
    let text = fs::read_to_string(place.path("mnt/small")).unwrap();
    assert_eq!(text, "small\n");
    mounted.end();
    let told = place.run(&["mount", "--partition", "2", &url, "mnt"]);
    let text = format!("forerun: {url}: has no partition 2; it has these: 1 (");
    assert!(told.stderr.starts_with(&text), "{}", told.stderr);
}
