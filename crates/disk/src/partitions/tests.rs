use forerun_io::MemorySource;

use super::*;

const LEN: usize = 1 << 20;

fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Writes entries of `(type, start, sectors)` into the record in sector `at`.
fn record(disk: &mut [u8], at: usize, entries: &[(u8, u32, u32)]) {
    let base = at * 512;
    put(disk, base + 510, &[0x55, 0xaa]);
    for (n, &(kind, start, sectors)) in entries.iter().enumerate() {
        let entry = base + 446 + 16 * n;
        disk[entry + 4] = kind;
        put(disk, entry + 8, &start.to_le_bytes());
        put(disk, entry + 12, &sectors.to_le_bytes());
    }
}

fn places(disk: &[u8]) -> Option<Vec<(u32, u64, u64)>> {
    let table = partition_table(&MemorySource::new(disk)).unwrap()?;
    let place = |part: TablePartition| (part.number, part.offset / 512, part.len / 512);
    Some(table.partitions.into_iter().map(place).collect())
}

#[test]
fn entries_of_a_boot_record_are_validated() {
    for (entries, expected) in [
        (&[(0x83, 8, 16)][..], Some(vec![(1, 8, 16)])),
        (
            &[(0, 0, 0), (7, 8, 16), (0, 0, 0), (0x0c, 100, 4)],
            Some(vec![(2, 8, 16), (4, 100, 4)]),
        ),
        // The disk is truncated.
        (&[(0x83, 8, u32::MAX)], Some(vec![(1, 8, u32::MAX.into())])),
        (&[(0x83, 0, 16)], None),
        (&[(0x83, 8, 0)], None),
        (&[(0x83, 4096, 16)], None),
        (&[(0x83, u32::MAX, u32::MAX)], None),
        (&[], None),
    ] {
        let mut disk = vec![0; LEN];
        record(&mut disk, 0, entries);
        assert_eq!(places(&disk), expected, "{entries:?}");
        disk[446] = 1;
        assert_eq!(places(&disk), None);
        disk[446] = 0x80;
        disk[511] = 0;
        assert_eq!(places(&disk), None);
    }
    assert_eq!(places(&[0; 511]), None);
    assert_eq!(places(&[]), None);
}

#[test]
fn chains_of_logical_partitions_end() {
    let mut disk = vec![0; LEN];
    record(&mut disk, 0, &[(0x83, 8, 16), (5, 100, 1000)]);
    record(&mut disk, 100, &[(0x83, 2, 10), (5, 50, 60)]);
    record(&mut disk, 150, &[(0x83, 3, 20)]);
    let two = vec![(1, 8, 16), (2, 100, 1000), (5, 102, 10), (6, 153, 20)];
    assert_eq!(places(&disk), Some(two.clone()));
    // The next record is the record itself, the first one, or beyond the file.
    for next in [50, 0, u32::MAX] {
        record(&mut disk, 150, &[(0x83, 3, 20), (5, next, 60)]);
        assert_eq!(places(&disk), Some(two.clone()), "{next}");
    }
    // As many records as fit.
    for n in 0..1000_u32 {
        let at = usize::try_from(100 + n).unwrap();
        record(&mut disk, at, &[(0x83, 1, 1), (5, n + 1, 2)]);
    }
    assert_eq!(places(&disk).unwrap().len(), 2 + 256);
}

/// Writes a table with entries of `(first, last)` and its backup, for a sector size.
fn gpt(sector: usize, entries: &[(u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0; LEN];
    let mut array = vec![0; 128 * 128];
    for (n, &(first, last)) in entries.iter().enumerate() {
        let at = n * 128;
        array[at] = 1;
        put(&mut array, at + 32, &first.to_le_bytes());
        put(&mut array, at + 40, &last.to_le_bytes());
        put(&mut array, at + 56, b"r\0o\0o\0t\0");
    }
    let last = LEN / sector - 1;
    for (place, entries_at) in [(1, 2), (last, last - 40)] {
        let mut header = vec![0; 92];
        put(&mut header, 0, b"EFI PART\0\0\x01\0\x5c\0\0\0");
        put(&mut header, 24, &u64_from(place).to_le_bytes());
        put(&mut header, 72, &u64_from(entries_at).to_le_bytes());
        put(&mut header, 80, &[128, 0, 0, 0, 128, 0, 0, 0]);
        put(&mut header, 88, &libdeflater::crc32(&array).to_le_bytes());
        let crc = libdeflater::crc32(&header);
        put(&mut header, 16, &crc.to_le_bytes());
        put(&mut disk, place * sector, &header);
        put(&mut disk, entries_at * sector, &array);
    }
    disk
}

#[test]
fn both_copies_of_a_guid_table_have_their_checksums_verified() {
    for sector in [512, 4096] {
        let disk = gpt(sector, &[(40, 47), (0, 0), (48, 48), (50, 49)]);
        let per = u64_from(sector / 512);
        let expected = vec![(1, 40 * per, 8 * per), (3, 48 * per, per)];
        assert_eq!(places(&disk), Some(expected.clone()));
        let table = partition_table(&MemorySource::new(&disk[..]))
            .unwrap()
            .unwrap();
        assert_eq!(
            (table.from_backup, &table.partitions[0].label[..]),
            (false, "root")
        );
        // Tests a protective record too, and damage to either part of the primary table.
        for (at, from_backup) in [(0, false), (sector + 72, true), (2 * sector + 57, true)] {
            let mut disk = disk.clone();
            record(&mut disk, 0, &[(0xee, 1, u32::MAX)]);
            disk[at] ^= 0x10;
            let table = partition_table(&MemorySource::new(&disk[..]))
                .unwrap()
                .unwrap();
            assert_eq!(table.kind, TableKind::Gpt);
            assert_eq!(table.from_backup, from_backup, "{at}");
            disk[LEN - sector + 20] ^= 1;
            let table = partition_table(&MemorySource::new(&disk[..])).unwrap();
            assert_eq!(
                table.is_some_and(|table| table.kind == TableKind::Mbr),
                from_backup
            );
        }
    }
}

#[test]
fn a_guid_table_that_claims_too_much_is_none() {
    for (at, bytes) in [
        (80, u32::MAX.to_le_bytes()),
        (84, u32::MAX.to_le_bytes()),
        (84, 0_u32.to_le_bytes()),
        (12, u32::MAX.to_le_bytes()),
        (12, 0_u32.to_le_bytes()),
        (76, u32::MAX.to_le_bytes()),
    ] {
        let mut disk = gpt(512, &[(40, 47)]);
        disk.truncate(LEN / 2);
        put(&mut disk, 512 + at, &bytes);
        put(&mut disk, 512 + 16, &[0; 4]);
        let crc = libdeflater::crc32(&disk[512..512 + 92]);
        put(&mut disk, 512 + 16, &crc.to_le_bytes());
        assert_eq!(places(&disk), None, "{at}");
    }
}
