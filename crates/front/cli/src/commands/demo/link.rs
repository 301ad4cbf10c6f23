//! An image behind a link, fetched on demand into an empty cache: with readers that wait for each window
//! that is fetched, as the first EROFS on demand did, against readahead that fetches while they read. A
//! local file shows the limit.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun::build::ErofsOptions;
use forerun::unstable::remote::{
    FarFile, Link, Readahead, RemoteImage, RemoteOptions, open_origin,
};
use forerun::{EngineOptions, Image, OpenOptions, ReadAt, Writer};
use forerun_io::Counter;

use super::measure::{FileReading, Kit, ReadWay, by_library, plain};
use super::model::{DemoPart, PartName, Row, RowRole};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size;

/// The link: that of a good connection to a server far away.
const LINK: Link = Link {
    round_trip: Duration::from_millis(20),
    bytes_per_second: 100_000_000,
};
/// The part of the largest file (one in so many) that this one has.
const SHARE: u64 = 4;

/// Returns the bytes of the file.
pub const fn file_len(size: u64) -> u64 {
    size / SHARE
}

/// Describes the part.
pub fn begin(kit: &Kit) -> DemoPart {
    let len = size::human(file_len(kit.size));
    let what = format!(
        "Reads a file of {len} in an EROFS image behind a simulated link of 100 MB/s, 20 ms away."
    );
    DemoPart::new(PartName::Link, what)
}

/// Measures it.
pub fn measure(kit: &Kit, part: &mut DemoPart) -> Result<()> {
    let len = file_len(kit.size);
    let md5 = kit.data.md5(len)?;
    let path = kit.place.path("image.erofs");
    let writer = Writer::Erofs(ErofsOptions::default());
    kit.data.pack(&writer, &path, len)?;
    let local = plain(kit, kit.data.path(), len)?;
    let far = Far { kit, path: &path };
    let waiting = far.read(Readahead::Sync, "cache-sync")?;
    let ahead = far.read(Readahead::Async, "cache-async")?;
    // Of the same cache, in which all of it is by now.
    let cached = far.read(Readahead::Async, "cache-async")?;
    for (_, reading) in [&waiting, &ahead, &cached] {
        reading.verify(&md5)?;
    }
    part.rows = vec![
        row(
            "sync",
            RowRole::Legacy,
            "legacy: waits for each fetch",
            &waiting,
        ),
        row(
            "async",
            RowRole::Ours,
            "forerun: fetches while it reads",
            &ahead,
        ),
        row(
            "cached",
            RowRole::Reference,
            "again, now from the cache",
            &cached,
        ),
        local.row(
            "local",
            RowRole::Reference,
            "a local file",
            Counter::SourceRequests,
        ),
    ];
    part.notes.push(format!(
        "The link alone takes {:.2} s. forerun --fetch-ahead sync is the legacy way: windows of 1 MiB, \
         one after the other.",
        LINK.round_trip.as_secs_f64() + super::model::ratio(len, LINK.bytes_per_second)
    ));
    super::remove(&path);
    Ok(())
}

struct Far<'k> {
    kit: &'k Kit,
    path: &'k Path,
}

impl Far<'_> {
    /// Reads the file in the image through the link into the cache of that name. Returns the number of
    /// fetches too.
    fn read(&self, readahead: Readahead, cache: &str) -> Result<(u64, FileReading)> {
        let failed = |error: io::Error| Failure::source(&error).of(self.path.display());
        self.kit.drop_caches(self.path)?;
        // The server has the image in memory: the link is what is measured, not the server's disk.
        let mut image = File::open(self.path).map_err(failed)?;
        io::copy(&mut image, &mut io::sink()).map_err(failed)?;
        let origin = FarFile::open(self.path, LINK).map_err(failed)?;
        let options = RemoteOptions {
            cache_dir: Some(self.kit.place.path(cache)),
            cache_limit: Some(u64::MAX),
            readahead,
            ..RemoteOptions::default()
        };
        let opened = open_origin(Arc::new(origin), &options);
        let remote: Arc<RemoteImage> = opened.map_err(|error| {
            Failure::new(Exit::Source, "remote", error.to_string()).of(self.path.display())
        })?;
        let mut way = ReadWay::ours();
        if readahead == Readahead::Sync {
            way.engine = EngineOptions {
                readahead: 0,
                ..EngineOptions::default()
            };
        }
        let open = OpenOptions {
            engine: way.engine.clone(),
            ..OpenOptions::default()
        };
        let source: Arc<dyn ReadAt> = Arc::<RemoteImage>::clone(&remote);
        let image = Image::from_source(source, &open)?;
        let reading = by_library(&image, &way)?;
        Ok((remote.status().requests, reading))
    }
}

fn row(
    id: &'static str,
    role: RowRole,
    what: &str,
    (fetches, reading): &(u64, FileReading),
) -> Row {
    Row {
        count: Some(*fetches),
        ..reading.row(id, role, what, Counter::SourceRequests)
    }
}
