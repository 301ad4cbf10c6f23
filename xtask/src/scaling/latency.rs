//! Round trips from 0.1 to 200 ms on a link of 100 MB/s.

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link};

use super::Lab;
use super::cost::{self, ForegroundMount};
use super::series::{LINEAR, ScalingSeries, float};

/// Round trips in microseconds.
const TRIPS: &[u64] = &[100, 1_000, 5_000, 20_000, 50_000, 100_000, 200_000];
/// Bytes that the link carries in a second.
const RATE: u64 = 100_000_000;
/// Length of the large file.
const LEN: usize = 64 << 20;
/// Files of the tree.
const FILES: u64 = 20_000;

pub fn measure(lab: &Lab) -> Result<Vec<ScalingSeries>> {
    let served = lab.dir.join("served");
    let source = lab.dir.join("source");
    fs::create_dir_all(&served)?;
    for dir in 0..FILES / 100 {
        let dir = source.join(format!("tree/{dir:04}"));
        fs::create_dir_all(&dir)?;
        for file in 0..100 {
            fs::write(dir.join(format!("{file:03}")), format!("{file}\n"))?;
        }
    }
    fs::write(
        source.join("data"),
        forerun_testkit::generate::bytes(1, LEN),
    )?;
    lab.pack(&source, &served.join("image"), &["--format", "erofs"])?;
    let server = Nginx::serve(&served).context("nginx serves the image: install nginx-light")?;
    let proxy = FaultProxy::start(&server.url());
    let of = |what: &str, unit| ScalingSeries::new(what, "ms", unit, LINEAR);
    let mut read = of("read 64 MiB from start to end", "s");
    let mut list = of("ls -lR of 20,000 files", "s");
    let mut requests = of("ls -lR of 20,000 files", "requests");
    for &trip in TRIPS {
        proxy.set_link(Link {
            rtt: Duration::from_micros(trip),
            bytes_per_second: Some(RATE),
        });
        let ms = float(trip) / 1000.0;
        let (url, cache) = (proxy.url_of("image"), lab.dir.join("cache"));
        let cache_text = cache.display().to_string();
        let mount = ForegroundMount::new(lab, &url, "mnt", &["--cache-dir", &cache_text])?;
        let start = Instant::now();
        let mut file = File::open(mount.dir().join("data"))?;
        let mut buffer = vec![0; 128 << 10];
        while file.read(&mut buffer)? > 0 {}
        read.points.push((ms, start.elapsed().as_secs_f64()));
        drop((file, mount));
        fs::remove_dir_all(&cache)?;
        proxy.forget();
        let mut ls = Command::new(&lab.forerun);
        ls.args(["ls", "-lR", "--cache-dir"]).arg(&cache).arg(&url);
        list.points.push((ms, cost::of(&mut ls)?.seconds));
        let count = u64::try_from(proxy.log().requests())?;
        requests.points.push((ms, float(count)));
        fs::remove_dir_all(&cache)?;
    }
    fs::remove_dir_all(served)?;
    Ok(vec![read, list, requests])
}
