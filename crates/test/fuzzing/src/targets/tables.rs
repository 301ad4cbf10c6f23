//! Tables of contents of archives: eStargz, zstd:chunked and SOCI.

use forerun_testkit::indexed::{IndexedArchive, fixture};
use forerun_testkit::ztoc::SociLayer;
use tar::{Builder, EntryType, Header};

use super::Made;

/// Opens an archive with a table, and decodes everything that the table lists.
pub fn table(bytes: &[u8]) {
    let _errors = forerun_tar::fuzzing::table(bytes);
}

pub fn seeds() -> Made {
    let archive = [&[0], &fixture("estargz").blob[..]].concat();
    Ok(vec![
        ("archive".to_string(), archive),
        ("gzip".to_string(), parts(1, &fixture("estargz"))),
        ("members".to_string(), parts(1, &fixture("merged"))),
        ("zstd".to_string(), parts(2, &fixture("chunked"))),
        (
            "without-ends".to_string(),
            parts(2, &fixture("stargz-zstd")),
        ),
    ])
}

/// Opens an archive with a SOCI table, and decodes all spans.
pub fn ztoc(bytes: &[u8]) {
    let _errors = forerun_tar::fuzzing::soci(bytes);
}

pub fn ztoc_seeds() -> Made {
    let plain = archive()?;
    let (spans, mut one) = (
        SociLayer::new(&plain, 5000),
        SociLayer::new(&plain, 1 << 20),
    );
    // The oldest form has no first checkpoint, whose 32 KiB window is meaningless.
    one.ztoc.checkpoints.truncate(12);
    let input = |layer: &SociLayer| {
        let table = layer.ztoc.encode();
        let len = u32::try_from(table.len()).unwrap_or(0).to_le_bytes();
        [&len[..], &table, &layer.blob].concat()
    };
    Ok(vec![
        ("spans".to_string(), input(&spans)),
        ("one".to_string(), input(&one)),
    ])
}

/// Returns the input for a table, and its data.
fn parts(choice: u8, made: &IndexedArchive) -> Vec<u8> {
    let data = made.blob.get(..made.data_len).unwrap_or_default();
    [&[choice], made.json.as_bytes(), &[0], data].concat()
}

fn archive() -> std::io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let zeros = vec![0; 4000];
    let members: [(&str, EntryType, &[u8]); 6] = [
        ("dir/", EntryType::Directory, b""),
        ("dir/first", EntryType::Regular, b"contents"),
        ("dir/file", EntryType::Regular, &zeros),
        ("dir/link", EntryType::Symlink, b""),
        ("dir/hard", EntryType::Link, b""),
        ("dir/null", EntryType::Char, b""),
    ];
    for (name, kind, data) in members {
        archive.append_pax_extensions([("SCHILY.xattr.user.a", &b"1"[..])])?;
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(u64::try_from(data.len()).unwrap_or(0));
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_device_major(1)?;
        header.set_device_minor(3)?;
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("dir/file")?;
        }
        archive.append_data(&mut header, name, data)?;
    }
    archive.into_inner()
}
