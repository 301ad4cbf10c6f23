//! Documents and texts of servers, and the facts that the cache remembers of an image.

use forerun_remote::fuzzing;

use super::Made;

pub use fuzzing::texts;

/// Parses the bytes as each document of a registry (manifest, index, image configuration), as a
/// record of the cache, and as a layer index.
pub fn documents(bytes: &[u8]) {
    fuzzing::documents(bytes);
    let _sound = fuzzing::remembered(bytes);
    fuzzing::layer_indexes(bytes);
}

pub fn document_seeds() -> Made {
    let mut seeds = vec![
        ("manifest".to_string(), fuzzing::manifest()),
        ("config".to_string(), fuzzing::config()),
    ];
    for (number, facts) in (0..).zip(fuzzing::facts()) {
        seeds.push((format!("facts-{number}"), facts));
    }
    Ok(seeds)
}

pub fn text_seeds() -> Made {
    let texts = (0..).zip(fuzzing::TEXTS);
    let seeds = texts.map(|(number, text)| (format!("text-{number}"), text.into()));
    Ok(seeds.collect())
}
