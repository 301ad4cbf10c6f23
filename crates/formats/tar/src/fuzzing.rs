//! Entry points of the fuzz targets, which ordinary tests run too. Not part of the API.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use forerun_io::{MemorySource, u64_from, usize_from};
use forerun_spans::{Compression, IndexOptions};
use forerun_vfs::{
    Error, History as _, KeepIndex, OpenWith, Place, ProvenTable, TablePlace, Verifier as _,
    exercise,
};

use crate::driver::Contents;
use crate::header::BLOCK;
use crate::index::Pass;
use crate::toc::ztoc;
use crate::{Tar, stream, toc};

pub use forerun_vfs::exercise::limits;

/// Opens an archive with `bytes` as its stored index, and exercises the whole driver. Returns the
/// errors.
pub fn kept(bytes: &[u8]) -> Vec<Error> {
    struct Kept(Vec<u8>);

    impl KeepIndex for Kept {
        fn load(&self, most: u64) -> Option<Vec<u8>> {
            (u64_from(self.0.len()) <= most).then(|| self.0.clone())
        }

        fn store(&self, _index: &[u8]) {}
    }

    let limits = limits();
    let mut with = OpenWith::new(Arc::new(MemorySource::new(small_archive())));
    with.limits = limits.clone();
    with.archive.index = Some(Arc::new(Kept(bytes.to_vec())));
    with.archive.is_layer = true;
    match Tar::open_with(&with) {
        Ok(tar) => exercise::all(&tar, &limits),
        Err(error) => vec![error],
    }
}

/// Returns the stored index of the archive in [`kept`].
#[must_use]
pub fn kept_seed() -> Vec<u8> {
    struct Keeper(Mutex<Vec<u8>>);

    impl KeepIndex for Keeper {
        fn load(&self, _most: u64) -> Option<Vec<u8>> {
            None
        }

        fn store(&self, index: &[u8]) {
            if let Ok(mut kept) = self.0.lock() {
                *kept = index.to_vec();
            }
        }
    }

    let keeper = Keeper(Mutex::default());
    let archive = small_archive();
    let source = MemorySource::new(&archive[..]);
    let options = IndexOptions {
        span_len: 1,
        ..IndexOptions::default()
    };
    let _opened = stream::read(
        &source,
        Compression::Gzip,
        &options,
        (Pass::new(&options.limits, false), Some(&keeper)),
    );
    keeper.0.into_inner().unwrap_or_default()
}

/// Returns an archive of one directory, as gzip with stored blocks.
fn small_archive() -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = block.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(0, b"d/");
    put(100, b"0000755\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"5");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    if let Some(field) = block.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let blocks = [&block[..], &[0; BLOCK], &[0; BLOCK]];
    let mut gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let mut crc = libdeflater::Crc::new();
    for (place, block) in blocks.iter().enumerate() {
        let is_last = place + 1 == blocks.len();
        // The length of a stored block, and its complement.
        gzip.extend([u8::from(is_last), 0, 2, 0xff, 0xfd]);
        gzip.extend_from_slice(block);
        crc.update(block);
    }
    gzip.extend(crc.sum().to_le_bytes());
    gzip.extend([0, 6, 0, 0]);
    gzip
}

/// Opens an archive from a table of contents, exercises the whole driver, and decodes everything
/// that the table lists. The first byte of `bytes` selects the input: an eStargz archive, or a
/// table, a NUL and the data of an archive of either compression. Returns the errors.
pub fn table(bytes: &[u8]) -> Vec<Error> {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return Vec::new();
    };
    let limits = limits();
    let compression = match choice % 3 {
        0 => {
            let table = ProvenTable {
                digest: [0; 32],
                place: TablePlace::Footer,
            };
            // The digest is compared last, so all other checks run.
            let opened = toc::open(&MemorySource::new(bytes), &table, &limits);
            return opened.err().into_iter().collect();
        }
        1 => Compression::Gzip,
        _ => Compression::Zstd,
    };
    let end = bytes.iter().position(|&byte| byte == 0);
    let (json, data) = bytes.split_at(end.unwrap_or(bytes.len()));
    let data = data.get(1..).unwrap_or_default();
    let (index, chunks) = match toc::of_json(json, compression, u64_from(data.len()), &limits) {
        Ok(opened) => opened,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    for block in chunks.blocks() {
        let stored = block.stored();
        let stored = usize_from(stored.start)..usize_from(stored.end);
        let stored = data.get(stored).unwrap_or_default();
        let mut decoded = vec![0; usize_from(u64::from(block.decoded_len.max()))];
        if block.decode(stored, &mut decoded).is_ok() {
            errors.extend(chunks.verify(&block, &decoded).err());
        }
    }
    let fs = Tar::new(index, Contents::Pieces(chunks));
    errors.extend(exercise::all(&fs, &limits));
    errors
}

/// Opens an archive from a SOCI table of contents, exercises the whole driver, and decodes all
/// spans. The first four bytes are the length of the table; the table and the archive follow.
/// Returns the errors.
pub fn soci(bytes: &[u8]) -> Vec<Error> {
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return Vec::new();
    };
    let len = usize_from(u64::from(u32::from_le_bytes(*len)));
    let (table, archive) = rest.split_at(len.min(rest.len()));
    let limits = limits();
    let digest = toc::digest_of(table);
    let opened = ztoc::open(
        u64_from(archive.len()),
        &table.into(),
        &digest,
        &limits,
        true,
    );
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    let all = 0..opened.index.facts.len;
    let _ended = opened.stream.map(all, &mut |_, place| {
        if let Place::Encoded { block, .. } = place {
            let stored = block.stored();
            let stored = usize_from(stored.start)..usize_from(stored.end);
            let stored = archive.get(stored).unwrap_or_default();
            errors.extend(opened.digests.verify_stored(&block, stored).err());
            let mut decoded = vec![0; usize_from(u64::from(block.decoded_len.max()))];
            let history = opened.stream.history(&block).unwrap_or_default();
            // Codec errors are not errors of the driver.
            let _decoded = block.decode_after(&history, stored, &mut decoded);
        }
        ControlFlow::Continue(())
    });
    let fs = Tar::new(
        opened.index,
        Contents::Verified(opened.stream, opened.digests),
    );
    errors.extend(exercise::all(&fs, &limits));
    errors
}

/// Opens `bytes` as an archive and exercises the whole driver. Returns the errors.
pub fn walk(bytes: &[u8]) -> Vec<Error> {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes)));
    with.limits = limits();
    let mut errors = Vec::new();
    for rescue in [false, true] {
        with.rescue = rescue;
        match Tar::open_with(&with) {
            Ok(fs) => errors.extend(exercise::all(&fs, &limits())),
            Err(error) => errors.push(error),
        }
    }
    errors
}
