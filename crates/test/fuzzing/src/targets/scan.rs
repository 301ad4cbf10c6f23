//! Scans of any bytes, and of the partition table in them.

use std::sync::Arc;

use forerun::unstable::disk::partitions::partition_table;
use forerun::unstable::disk::scan::{ScanKind, ScanOptions, scan};
use forerun::unstable::formats;
use forerun::{MemorySource, ReadAt};

use super::{Made, named};

/// Scans bytes twice, with and without a search for images.
///
/// # Panics
/// If a finding lies outside the bytes or inside a later one, or if searching for images finds
/// less.
pub fn run(bytes: &[u8]) {
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes));
    let scanned = [false, true].map(|all| {
        let options = ScanOptions {
            all,
            ..ScanOptions::default()
        };
        scan(&source, formats(), options, &Arc::default(), &mut |_| {}).unwrap_or_default()
    });
    for (index, finding) in scanned.iter().flat_map(|scan| (0..).zip(&scan.findings)) {
        assert!(
            finding.offset < forerun::unstable::disk::disk_len(&source),
            "{finding:?}"
        );
        assert!(
            finding.inside.is_none_or(|outer| outer < index),
            "{finding:?}"
        );
    }
    let [images, all] = scanned.map(|scan| {
        let images = scan
            .findings
            .iter()
            .filter(|it| matches!(it.kind, ScanKind::Image(_)));
        images.count()
    });
    assert!(images <= all, "{images} of {all}");
    if let Ok(Some(table)) = partition_table(&source) {
        assert!(table.partitions.len() <= 8192);
    }
}

/// Returns images of other targets, each after a header, and one after a partition table.
pub fn seeds() -> Made {
    let mut seeds = Vec::new();
    for (format, made) in [
        ("romfs", named(forerun_romfs::fuzzing::seeds()?)),
        ("squashfs", super::squashfs_images()?),
        ("exfat", super::exfat::images()?),
    ] {
        for (name, image) in made
            .into_iter()
            .filter(|(_, image)| image.len() < 64 << 10)
            .take(2)
        {
            let len = u32::try_from(image.len()).unwrap_or(0) + 28;
            let words = [len, 0, 1 << 16, 28, 0, 0].map(u32::to_le_bytes).concat();
            seeds.push((
                format!("{format}-{name}"),
                [b"HDR0", &words[..], &image].concat(),
            ));
        }
    }
    let mut disk = vec![0; 4096];
    disk[446..462].copy_from_slice(&[0, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0]);
    for at in [510, 1534] {
        disk[at..at + 2].copy_from_slice(&[0x55, 0xaa]);
    }
    seeds.push(("mbr".to_string(), disk));
    Ok(named(seeds))
}
