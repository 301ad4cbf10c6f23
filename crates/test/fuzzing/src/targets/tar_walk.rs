//! tar archives as images.

use std::io;

use tar::{Builder, EntryType, Header};

use super::{Made, tar_tree};

pub fn seeds() -> Made {
    let mut seeds = tar_tree::seeds()?;
    seeds.push(("records".to_string(), records()?));
    Ok(seeds)
}

/// Builds an archive with extended headers: a sparse file, attributes, and values for one member
/// and for all.
fn records() -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    archive.append_pax_extensions([
        ("path", &b"sparse"[..]),
        ("mtime", b"-1.5"),
        ("SCHILY.xattr.user.a", b"1"),
        ("LIBARCHIVE.xattr.user%2Eb", b"Mg=="),
        ("GNU.sparse.size", b"5000"),
        ("GNU.sparse.map", b"1000,3,4000,2"),
    ])?;
    append(&mut archive, b"bytes")?;
    archive.append_pax_extensions([
        ("GNU.sparse.major", &b"1"[..]),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"map before the data"),
        ("GNU.sparse.realsize", b"900"),
    ])?;
    let mut map = b"1\n100\n5\n".to_vec();
    map.resize(512, 0);
    map.extend(b"bytes");
    append(&mut archive, &map)?;
    archive.into_inner()
}

fn append(archive: &mut Builder<Vec<u8>>, data: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_path("file")?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(data.len().try_into().unwrap_or(0));
    header.set_cksum();
    archive.append(&header, data)
}
