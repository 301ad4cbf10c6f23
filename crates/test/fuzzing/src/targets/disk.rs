//! Maps of disks: Android sparse images and UBI.

use forerun_disk::fuzzing;

use super::Made;

/// Reads the map, and again after correcting the checksums of UBI headers.
pub fn run(bytes: &[u8]) {
    fuzzing::walk(bytes);
    let mut bytes = bytes.to_vec();
    fuzzing::sum_headers(&mut bytes);
    fuzzing::walk(&bytes);
}

pub fn seeds() -> Made {
    let seeds = [
        ("sparse", fuzzing::sparse_image()),
        ("ubi", fuzzing::flash()),
    ];
    Ok(seeds.map(|(name, bytes)| (name.to_string(), bytes)).into())
}
