//! Entry points for fuzz targets. Not for users.
//!
//! Plain functions over the files that the cache reads back from its directory, so that ordinary
//! tests can run the same code. They panic only if the cache breaks its contract.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun_io::{MemorySource, u64_from, usize_from};

use crate::info::Info;
use crate::{
    AccessList, BlobSpec, Cache, CacheOptions, CachedBlob, ChunkTable, Digest, Geometry,
    TableTrust, VerifiedTable, claims, names, state,
};

/// Files that [`reopen`] replaces.
pub const FILES: [&str; 9] = [
    "info", "use", "data", "records", "state", "table", "claims", "whole", "name",
];
pub const WITH_TABLE: u8 = 1;
/// Flag: the state file is trusted.
pub const TRUST: u8 = 2;
/// Flag: all chunks are hashed again.
pub const RECHECK: u8 = 4;
/// Flag: checksums of the replaced file are corrected.
pub const SEAL: u8 = 8;

const CHUNK: u32 = 4096;
/// Number of chunks of the image; the last one is shorter.
const CHUNKS: u64 = 7;
const STORED: Range<u64> = 1..5;
const NAME: &str = "a reference";

/// Parses bytes as each of the text formats of the cache.
pub fn texts(bytes: &[u8]) {
    if let Ok(lists) = AccessList::parse_all(bytes) {
        let text: String = lists.iter().map(AccessList::to_text).collect();
        assert_eq!(AccessList::parse_all(text.as_bytes()).ok(), Some(lists));
    }
    if let Ok(list) = AccessList::parse(bytes) {
        assert_eq!(
            AccessList::parse(list.to_text().as_bytes()).ok(),
            Some(list.clone())
        );
        for len in [0, 1, 1 << 20, 1 << 45] {
            if let Ok(geometry) = Geometry::new(len, CHUNK) {
                for run in list.runs_for(&geometry) {
                    assert!(run.start < run.end && run.end <= geometry.chunks());
                }
            }
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
    }
    if let Some(info) = Info::parse(text) {
        assert_eq!(Info::parse(&info.text()), Some(info));
    }
}

/// Returns seeds for [`texts`]: valid examples of each format.
pub fn text_seeds() -> Vec<Vec<u8>> {
    let list = b"forerun access list 1\nimage: sha256:x\nchunk: 1024\n4-5\n0\n6-8\n";
    let digest = Digest::of(b"abc");
    let info = format!(
        "forerun cached blob 1\nidentity: x\nlabel: y\nlength: 9000\nchunk: 4096\nroot: {digest}\n"
    );
    vec![list.to_vec(), digest.to_string().into(), info.into()]
}

/// Creates a cache in `dir` with a partly stored image. Returns the contents of the file
/// `FILES[file]`.
pub fn make(dir: &Path, flags: u8, file: usize) -> crate::Result<Vec<u8>> {
    let cache = Cache::open(dir, options(flags))?;
    let blob = cache.blob(spec(flags))?;
    let image = image();
    let place = blob.geometry().bytes_of(&STORED);
    let range = usize_from(place.start)..usize_from(place.end);
    blob.store(STORED.start, image.get(range).unwrap_or_default())?;
    blob.flush()?;
    cache.remember(NAME, &spec(flags).identity, b"facts")?;
    let path = path(&cache, flags, file);
    Ok(fs::read(path).unwrap_or_default())
}

/// Replaces a file of a cache that [`make`] made, and runs all operations on the cache.
///
/// # Panics
/// If a chunk with wrong bytes is served although there is a table and the state file is not
/// trusted.
///
/// # Errors
/// The errors of the cache. Damage is no error: damaged blobs and chunks are dropped.
pub fn reopen(dir: &Path, flags: u8, file: usize, bytes: &[u8]) -> crate::Result<()> {
    let cache = Cache::open(dir, options(flags))?;
    let mut bytes = bytes.to_vec();
    if flags & SEAL != 0 {
        seal(FILES.get(file % FILES.len()).copied(), &mut bytes);
    }
    let failed = crate::CacheError::io("write", dir);
    fs::write(path(&cache, flags, file), bytes).map_err(failed)?;
    drop(cache);
    let cache = Cache::open(dir, options(flags))?;
    let _listed = cache.list()?;
    if let Some(recalled) = cache.recall(NAME) {
        assert!(recalled.geometry.chunks() > 0);
    }
    let blob = cache.blob(spec(flags))?;
    let served = served(&blob, flags);
    cache.verify(|_| {})?;
    let all = 0..CHUNKS;
    let claim = blob.claim(std::slice::from_ref(&all))?;
    let image = image();
    for run in claim.mine() {
        let place = blob.geometry().bytes_of(run);
        let range = usize_from(place.start)..usize_from(place.end);
        blob.store(run.start, image.get(range).unwrap_or_default())?;
    }
    for run in claim.busy() {
        let _waited = blob.wait(run.start, Duration::ZERO)?;
    }
    drop(claim);
    assert!(served <= self::served(&blob, flags) || flags & WITH_TABLE == 0);
    blob.flush()?;
    drop(blob);
    let _collected = cache.gc()?;
    let _emptied = cache.shrink_to(0)?;
    Ok(())
}

/// Reads every present chunk. Returns their number.
fn served(blob: &CachedBlob, flags: u8) -> usize {
    let image = image();
    let mut served = 0;
    for (chunk, expected) in (0..).zip(image.chunks(usize_from(CHUNK.into()))) {
        let mut out = vec![0; expected.len()];
        let offset = chunk * u64::from(CHUNK);
        let is_there = blob.read_if_present(offset, &mut out);
        if !is_there.is_ok_and(|is_there| is_there) {
            continue;
        }
        served += 1;
        let is_believed = flags & TRUST != 0 || flags & WITH_TABLE == 0;
        assert!(
            out == expected || is_believed,
            "chunk {chunk} is another one"
        );
    }
    served
}

fn path(cache: &Cache, flags: u8, file: usize) -> std::path::PathBuf {
    let layout = cache.layout();
    match FILES.get(file % FILES.len()).copied().unwrap_or_default() {
        "name" => layout.names().join(Digest::of(NAME.as_bytes()).hex()),
        name => layout.blob(&spec(flags).identity).join(name),
    }
}

fn seal(file: Option<&str>, bytes: &mut Vec<u8>) {
    match file {
        Some("state") => state::seal(bytes),
        Some("claims") => claims::seal(bytes),
        Some("name") => *bytes = names::sealed(bytes),
        _ => {}
    }
}

fn image() -> Vec<u8> {
    let len = usize_from((CHUNKS - 1) * u64::from(CHUNK)) + 100;
    let byte = |at: usize| at.wrapping_mul(31).to_le_bytes()[0] ^ (at >> 8).to_le_bytes()[0];
    (0..len).map(byte).collect()
}

fn spec(flags: u8) -> BlobSpec {
    let image = image();
    let source = MemorySource::new(&image[..]);
    let table = ChunkTable::of_source(&source, CHUNK).ok();
    let table = table.filter(|_| flags & WITH_TABLE != 0).and_then(|table| {
        let (geometry, root) = (table.geometry(), table.root());
        let source = Arc::new(MemorySource::new(table.into_bytes()));
        VerifiedTable::new(source, geometry, root).ok()
    });
    BlobSpec {
        identity: "an image".to_string(),
        len: u64_from(image.len()),
        chunk_size: CHUNK,
        table: table.map(Arc::new),
        trust: TableTrust::default(),
        label: String::new(),
        temporary: false,
    }
}

/// Returns options that turn background work off.
fn options(flags: u8) -> CacheOptions {
    CacheOptions {
        trust: flags & TRUST != 0,
        recheck: flags & RECHECK != 0,
        flush_bytes: u64::MAX,
        flush_after: Duration::from_secs(3600),
        ..CacheOptions::default()
    }
}
