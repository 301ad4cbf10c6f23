//! Files that a cache reads back from its own directory.

use forerun_cache::fuzzing::{self, FILES, SEAL};
use forerun_testkit::temp_dir;

use super::Made;

pub use fuzzing::texts;

/// Replaces a file of a cache and uses the cache. The first byte has flags, the second names the
/// file.
///
/// # Panics
/// If an unverified chunk is served, or if the cache becomes unusable.
pub fn directory(bytes: &[u8]) {
    let &[flags, file, ref bytes @ ..] = bytes else {
        return;
    };
    let dir = temp_dir("fuzz-cache");
    let made = fuzzing::make(dir.path(), flags, file.into());
    assert!(made.is_ok(), "{made:?}");
    let used = fuzzing::reopen(dir.path(), flags, file.into(), bytes);
    assert!(used.is_ok(), "{used:?}");
}

pub fn text_seeds() -> Made {
    let texts = (0..).zip(fuzzing::text_seeds());
    Ok(texts
        .map(|(number, text): (u8, _)| (format!("text-{number}"), text))
        .collect())
}

pub fn directory_seeds() -> Made {
    let mut seeds = Vec::new();
    for flags in [0, fuzzing::WITH_TABLE, fuzzing::WITH_TABLE | SEAL] {
        for (file, name) in (0_u8..).zip(FILES) {
            let dir = temp_dir("fuzz-cache");
            let mut bytes = fuzzing::make(dir.path(), flags, file.into())?;
            if name == "name" && flags & SEAL != 0 {
                // Without the checksum, which is added again in front.
                let start = bytes.windows(5).position(|word| word == b"name:");
                bytes.drain(..start.unwrap_or(0));
            }
            seeds.push((
                format!("{name}-{flags}"),
                [&[flags, file], &bytes[..]].concat(),
            ));
        }
    }
    Ok(seeds)
}
