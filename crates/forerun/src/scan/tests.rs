//! Scans of made-up files.

use forerun_io::MemorySource;

use super::*;

/// Returns bytes that do not repeat.
fn random(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).collect()
}

fn found(bytes: &[u8]) -> Scanned {
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes));
    scan(
        &source,
        ScanOptions::default(),
        &Arc::default(),
        &mut |_| {},
    )
    .unwrap()
}

fn trx_of(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(28 + body.len()).unwrap();
    let head = [1 << 16, 28, 0, 0].map(u32::to_le_bytes).concat();
    let summed = [&head, body].concat();
    let crc = !libdeflater::crc32(&summed);
    [b"HDR0", &len.to_le_bytes()[..], &crc.to_le_bytes(), &summed].concat()
}

/// Passes over random data; 1 GiB with `FORERUN_LARGE=1`.
#[test]
fn random_data_has_no_images() {
    let mut bytes = random(64 << 20);
    let rounds = if std::env::var_os("FORERUN_LARGE").is_some() {
        16
    } else {
        1
    };
    for _ in 0..rounds {
        let scanned = found(&bytes);
        assert_eq!(scanned.findings, []);
        bytes.rotate_left(1);
        bytes
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_mul(5).wrapping_add(77));
    }
}

#[test]
fn checksums_of_data_are_computed_across_pieces() {
    for len in [1, 100_000, 9 << 20] {
        let body = random(len);
        let trx = trx_of(&body);
        let mut file = [vec![0; (4 << 20) - 13], trx.clone(), vec![7; 100]].concat();
        let findings = found(&file).findings;
        assert_eq!(findings.len(), 1);
        assert_eq!(
            (findings[0].offset, findings[0].len),
            ((4 << 20) - 13, Some(u64_from(trx.len())))
        );
        assert_eq!(findings[0].intact, Some(true), "{len}");
        let last = file.len() - 101;
        file[last] ^= 1;
        assert_eq!(found(&file).findings[0].intact, Some(false));
    }
}

#[test]
fn files_full_of_magic_numbers_end_soon() {
    for sign in [
        &b"hsqs"[..],
        b"-rom1fs-",
        b"\xe2\xe1\xf5\xe0",
        b"EXFAT   ",
        b"HDR0",
        headers::UIMAGE,
    ] {
        let bytes = sign.repeat((5 << 20) / sign.len());
        assert_eq!(found(&bytes).findings, [], "{sign:?}");
    }
}

#[test]
fn more_findings_than_fit_are_cut() {
    let trx = trx_of(b"12345678");
    let scanned = found(&trx.repeat(MOST_FINDINGS + 10));
    assert!(scanned.is_cut);
    assert_eq!(scanned.findings.len(), MOST_FINDINGS);
}

#[test]
fn the_smallest_finding_around_is_named() {
    let range = |offset, len| ScanFinding::new(offset, len, ScanKind::Trx);
    let mut findings = vec![
        range(10, Some(10)),
        range(0, Some(100)),
        range(12, Some(4)),
        range(13, None),
        // Overlaps the one before and lies in none but the outermost.
        range(15, Some(20)),
        range(200, Some(1)),
    ];
    nest::nest(&mut findings);
    let inside: Vec<_> = findings.iter().map(|finding| finding.inside).collect();
    assert_eq!(inside, [None, Some(0), Some(1), Some(2), Some(0), None]);
}
