//! Archives of many small, similar files: images and inputs that are stored in the repository.

use std::error::Error;
use std::io::{Cursor, Read};

/// Most bytes of an unpacked archive.
const UNPACKED: u64 = 1 << 30;

type Files = Vec<(String, Vec<u8>)>;

/// Returns names and contents of the files in a tar archive that is compressed with Zstandard.
pub fn unpack(packed: &[u8]) -> Result<Files, Box<dyn Error>> {
    let told = zstd_safe::get_frame_content_size(packed).map_err(|error| error.to_string())?;
    let len = told
        .filter(|&len| len <= UNPACKED)
        .ok_or("an archive of unknown or excessive length")?;
    let mut archive = vec![0; len.try_into()?];
    zstd_safe::decompress(&mut archive[..], packed).map_err(zstd_safe::get_error_name)?;
    let mut files = Vec::new();
    for entry in tar::Archive::new(Cursor::new(archive)).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.push((name, bytes));
    }
    Ok(files)
}

/// Returns the file `name` of a packed archive at `path` in the workspace.
pub fn packed_file(path: &str, name: &str) -> Vec<u8> {
    let packed = std::fs::read(crate::workspace_root().join(path)).unwrap();
    let files = unpack(&packed).unwrap();
    let found = files.into_iter().find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("{path} has no {name}")).1
}
