//! The inputs stored in the repository: minimised corpora, which a test replays.
//!
//! Each target has one archive, `corpora/NAME.tar.zst`. A corpus is thousands of small, similar
//! files, so one compressed archive takes a fraction of the space, and a change of a corpus is a
//! change of one file.
//!
//! Two limits apply: all archives together stay under [`TOTAL`] bytes, and replaying is limited in
//! time, because every test run replays the inputs.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use forerun_testkit::packed::unpack;

use crate::{Seeds, TARGETS, Target};

/// Most bytes of all archives together.
pub const TOTAL: usize = 5_000_000;
/// Time limit for replaying all stored inputs of one target in the test build profile.
const TIME_OF_ALL: Duration = Duration::from_millis(500);
/// Time limit of one stored input.
const TIME_OF_ONE: Duration = Duration::from_millis(50);
/// Compression level of archives, which are read often and written rarely.
const LEVEL: i32 = 19;

#[must_use]
pub fn directory() -> PathBuf {
    forerun_testkit::workspace_root().join("crates/test/fuzzing/corpora")
}

fn archive_of(target: &Target) -> PathBuf {
    directory().join(format!("{}.tar.zst", target.name))
}

/// Returns whether a target has stored inputs.
#[must_use]
pub fn exists(target: &Target) -> bool {
    archive_of(target).exists()
}

pub fn read(target: &Target) -> Result<Seeds, Box<dyn Error>> {
    let path = archive_of(target);
    let packed = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    unpack(&packed)
}

/// Writes the archive of a target with as many of `inputs` as the limits allow, shortest first.
/// Returns their number. Fails if an input is a finding.
pub fn write(target: &Target, inputs: Seeds) -> Result<usize, Box<dyn Error>> {
    let limit = TOTAL / TARGETS.len();
    let mut chosen = in_bounds_of_time(target, inputs)?;
    let mut packed = pack(&chosen)?;
    while packed.len() > limit {
        // Inputs differ in how well they compress. The mean estimates how many fit.
        let fitting = chosen.len() * limit / packed.len();
        chosen.truncate(fitting.min(chosen.len().saturating_sub(1)));
        packed = pack(&chosen)?;
    }
    if chosen.is_empty() {
        return Err(format!("{}: no input fits in {limit} bytes", target.name).into());
    }
    fs::create_dir_all(directory())?;
    fs::write(archive_of(target), packed)?;
    Ok(chosen.len())
}

/// Returns the fast inputs, shortest first, up to [`TIME_OF_ALL`].
fn in_bounds_of_time(target: &Target, mut inputs: Seeds) -> Result<Seeds, Box<dyn Error>> {
    inputs
        .sort_by(|(name, bytes), (other, others)| (bytes.len(), name).cmp(&(others.len(), other)));
    let mut chosen = Vec::new();
    let mut total = Duration::ZERO;
    for (name, bytes) in inputs {
        let took = target
            .replay(&bytes)
            .map_err(|finding| format!("{}: {name}: {finding}", target.name))?;
        if took <= TIME_OF_ONE && total + took <= TIME_OF_ALL {
            total += took;
            chosen.push((name, bytes));
        }
    }
    Ok(chosen)
}

fn pack(inputs: &Seeds) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in inputs {
        // Nothing but name and bytes, so that the same inputs give the same archive.
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len().try_into()?);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, &bytes[..])?;
    }
    let archive = archive.into_inner()?;
    let mut packed = vec![0; zstd_safe::compress_bound(archive.len())];
    let len = zstd_safe::compress(&mut packed[..], &archive, LEVEL);
    packed.truncate(len.map_err(zstd_safe::get_error_name)?);
    Ok(packed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn inputs_come_back_as_they_were_packed() {
        let inputs: Seeds = (0..300_u16)
            .map(|n| (format!("input-{n}"), n.to_le_bytes().repeat(n.into())))
            .collect();
        let packed = pack(&inputs).unwrap();
        assert_eq!(unpack(&packed).unwrap(), inputs);
        assert_eq!(pack(&inputs).unwrap(), packed);
    }

    #[test]
    fn an_archive_that_was_cut_off_is_an_error() {
        let packed = pack(&vec![("input".to_string(), vec![7; 5000])]).unwrap();
        for len in 0..packed.len() {
            unpack(&packed[..len]).unwrap_err();
        }
    }

    #[test]
    fn an_input_that_is_a_finding_is_not_kept() {
        let target = Target::new("none", |bytes| assert!(bytes.is_empty()), || Ok(Vec::new()));
        let inputs = vec![("bad".to_string(), vec![1])];
        let error = write(&target, inputs).unwrap_err().to_string();
        assert!(error.starts_with("none: bad: assertion failed"), "{error}");
    }
}
