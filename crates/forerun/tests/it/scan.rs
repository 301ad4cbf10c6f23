//! Scans of synthetic files.

use std::sync::Arc;

use forerun::unstable::disk::known::KNOWN;
use forerun::unstable::disk::scan::{self, MOST_FINDINGS, ScanKind, ScanOptions, Scanned};
use forerun::unstable::formats;
use forerun::vfs::Result;
use forerun::{MemorySource, ReadAt};
use forerun_io::{Counter, Observer, u64_from};

fn scan(source: &Arc<dyn ReadAt>, options: ScanOptions) -> Result<Scanned> {
    scan::scan(source, formats(), options, &Arc::default(), &mut |_| {})
}

/// Scans, and also returns the number of bytes that were read.
fn counted(source: &Arc<dyn ReadAt>) -> (Scanned, u64) {
    let observer: Arc<Observer> = Arc::default();
    let options = ScanOptions::default();
    let scanned = scan::scan(source, formats(), options, &observer, &mut |_| {});
    let read = observer.stats().snapshot().get(Counter::SourceBytes);
    (scanned.unwrap(), read)
}

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

/// Returns what a scan finds, without what lies between.
fn found(bytes: &[u8]) -> Scanned {
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(bytes));
    known(scan(&source, ScanOptions::default()).unwrap())
}

fn known(mut scanned: Scanned) -> Scanned {
    scanned.findings.retain(|finding| finding.kind.is_known());
    scanned
}

fn trx_of(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(28 + body.len()).unwrap();
    let head = [1 << 16, 28, 0, 0].map(u32::to_le_bytes).concat();
    let summed = [&head, body].concat();
    let crc = !libdeflater::crc32(&summed);
    [b"HDR0", &len.to_le_bytes()[..], &crc.to_le_bytes(), &summed].concat()
}

/// Scans random data; 1 GiB with `FORERUN_LARGE=1`.
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

/// Compressed text without the headers of a stream: its bytes are no more random than most of a firmware file.
#[test]
fn compressed_data_has_no_known_contents() {
    let words = random(1 << 12);
    let words: Vec<_> = words
        .chunks(7)
        .map(|word| word.iter().map(|byte| b'a' + byte % 26))
        .collect();
    let mut bytes = Vec::new();
    let mut seed = random(64 << 20).into_iter();
    while bytes.len() < 64 << 20 {
        let text: Vec<u8> = seed
            .by_ref()
            .take(1 << 20)
            .flat_map(|at| words[usize::from(at)].clone())
            .collect();
        assert!(!text.is_empty());
        let level = libdeflater::CompressionLvl::new(1).unwrap();
        let mut packer = libdeflater::Compressor::new(level);
        let mut out = vec![0; packer.deflate_compress_bound(text.len())];
        let len = packer.deflate_compress(&text, &mut out).unwrap();
        bytes.extend_from_slice(&out[..len]);
    }
    assert_eq!(found(&bytes).findings, []);
}

#[test]
fn padding_and_unknown_bytes_are_listed_between_findings() {
    let noise = random(5 << 20);
    let trx = trx_of(&noise[..100]);
    let parts: [&[u8]; 7] = [
        &noise,
        &[0xff; 70_000],
        b"text text",
        &trx,
        &[0; 5],
        &noise[..5000],
        &[0; 100],
    ];
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(parts.concat()));
    // Each byte is read once; the partition tables lie at both ends.
    let (scanned, read) = counted(&source);
    assert!(read < source.len() + (64 << 10), "{read}");
    let found: Vec<_> = scanned
        .findings
        .iter()
        .map(|it| (it.kind.name(), it.len.unwrap(), it.inside))
        .collect();
    // Few equal bytes belong to what is around them.
    let expected = [
        ("unknown", 5 << 20, None),
        ("padding", 70_000, None),
        ("unknown", 9, None),
        ("trx", 128, None),
        ("unknown", 100, Some(3)),
        ("unknown", 5105, None),
    ];
    assert_eq!(found, expected);
    let entropy = scanned
        .findings
        .iter()
        .map(|it| it.entropy.map(|bits| bits.round()));
    assert_eq!(
        entropy.collect::<Vec<_>>(),
        [Some(8.0), None, Some(2.0), None, Some(6.0), Some(8.0)]
    );
    assert_eq!(scanned.findings[1].details, "0xff");
    let mut end = 0;
    for finding in scanned.findings.iter().filter(|it| it.inside.is_none()) {
        assert_eq!(finding.offset, end);
        end += finding.len.unwrap();
    }
    assert_eq!(end, source.len());
}

#[test]
fn checksums_of_data_are_computed_across_pieces() {
    for len in [1, 100_000, 9 << 20] {
        let body = random(len);
        let trx = trx_of(&body);
        let mut file = [vec![0; (4 << 20) - 13], trx.clone(), vec![7; 100]].concat();
        let findings = found(&file).findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
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
        b"\x27\x05\x19\x56",
    ] {
        let bytes = sign.repeat((5 << 20) / sign.len());
        assert_eq!(found(&bytes).findings, [], "{sign:?}");
    }
}

/// A file of starts of one kind, each of which claims as much as its fields can say.
#[test]
fn files_full_of_any_known_magic_number_are_read_at_most_three_times() {
    for known in KNOWN {
        for filler in [0, 0xff] {
            let at = usize::try_from(known.magic.offset).unwrap();
            let mut start = vec![filler; at.max(64)];
            start.truncate(at);
            start.extend_from_slice(known.magic.bytes);
            start.resize(start.len().max(64), filler);
            let bytes = start.repeat((5 << 20) / start.len());
            let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(&bytes[..]));
            let (_, read) = counted(&source);
            assert!(read < 3 * source.len() + (64 << 20), "{known:?}: {read}");
        }
    }
}

#[test]
fn an_archive_of_many_streamed_members_is_read_once() {
    let data = random(3 << 20);
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for (n, data) in data.chunks_exact(3000).enumerate() {
        let name = format!("{n:04}");
        let at = u32::try_from(bytes.len()).unwrap();
        // Deflate, with the sizes after the data.
        let head = [20, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0].map(u16::to_le_bytes);
        bytes.extend([b"PK\x03\x04", &head.concat()[..], name.as_bytes(), data].concat());
        bytes.extend(*b"PK\x07\x08            ");
        directory.extend([b"PK\x01\x02\x14\0", &head.concat()[..]].concat());
        directory.extend([0; 10]);
        directory.extend([&at.to_le_bytes()[..], name.as_bytes()].concat());
    }
    bytes.extend(directory);
    bytes.extend([&b"PK\x05\x06"[..], &[0; 18]].concat());
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(&bytes[..]));
    let (scanned, read) = counted(&source);
    let zip = &known(scanned).findings[0];
    assert_eq!(zip.kind, ScanKind::Image("zip"));
    assert_eq!(
        (zip.len, &*zip.details),
        (Some(source.len()), "1048 members")
    );
    // Once by the check of the archive, once by the scan.
    assert!(read < 2 * source.len() + (1 << 20), "{read}");
}

#[test]
fn more_findings_than_fit_are_cut() {
    let trx = trx_of(b"12345678");
    let scanned = found(&trx.repeat(MOST_FINDINGS + 10));
    assert!(scanned.is_cut);
    assert_eq!(scanned.findings.len(), MOST_FINDINGS);
}

mod archives {
    use super::*;

    /// Returns a tar member whose type is this letter.
    fn member(kind: u8, data: &[u8]) -> Vec<u8> {
        let mut block = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"name");
        for (at, digits) in [(100, 7), (108, 7), (116, 7), (136, 11)] {
            put(at, &vec![b'0'; digits]);
        }
        put(124, format!("{:011o}", data.len()).as_bytes());
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        put(148, b"        ");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block.extend_from_slice(data);
        block.resize(block.len().next_multiple_of(512), 0);
        block
    }

    fn places(scanned: &Scanned) -> Vec<(u64, Option<u64>, Option<usize>)> {
        let findings = scanned.findings.iter();
        findings
            .map(|finding| {
                assert_eq!(finding.kind, ScanKind::Image("tar"));
                (finding.offset, finding.len, finding.inside)
            })
            .collect()
    }

    #[test]
    fn an_archive_is_one_finding_with_its_end() {
        let noise = random(100_000 / 512 * 512);
        // Members across the scan's buffers, an extended header, and an archive inside a member.
        let inner = [member(b'0', b"inner"), vec![0; 1024]].concat();
        let archive = [
            member(b'x', b"11 a=bcdef\n"),
            member(b'0', &random(9 << 20)),
            member(b'0', &inner),
            member(b'0', b"last"),
            vec![0; 1024],
        ]
        .concat();
        let at = u64_from(noise.len());
        let len = Some(u64_from(archive.len()));
        let file = [&noise[..], &archive, &noise, &inner, b"end"].concat();
        let second = at * 2 + u64_from(archive.len());
        let other = Some(u64_from(inner.len()));
        let outer = [(at, len, None), (second, other, None)];
        assert_eq!(places(&found(&file)), outer);
        let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(&file[..]));
        let options = ScanOptions {
            all: true,
            ..ScanOptions::default()
        };
        let all = known(scan(&source, options).unwrap());
        let within = at + 1024 + 512 + (9 << 20) + 512;
        // The noise before the archive is the first finding.
        assert_eq!(places(&all), [outer[0], (within, other, Some(1)), outer[1]]);
        // An archive cut inside a member, or by other bytes.
        let cut = &archive[..archive.len() - 2000];
        let end = archive.len() - 1024 - 1024;
        assert_eq!(places(&found(cut)), [(0, Some(u64_from(end)), None)]);
        let damaged = [&archive[..end], &noise].concat();
        assert_eq!(places(&found(&damaged)), [(0, Some(u64_from(end)), None)]);
    }

    #[test]
    fn a_header_needs_its_checksum_and_its_place() {
        let archive = [member(b'0', b"data"), vec![0; 1024]].concat();
        let mut altered = archive.clone();
        altered[0] ^= 1;
        assert_eq!(found(&altered).findings, []);
        assert_eq!(found(&[b"x", &archive[..]].concat()).findings, []);
        assert_eq!(found(&archive[..514]).findings, [], "its data is cut");
        let text = b"ustar".repeat(1 << 20);
        assert_eq!(found(&text).findings, []);
    }

    #[test]
    fn compressed_archives_are_found_at_any_offset() {
        let archive = [member(b'0', &random(300_000)), vec![0; 1024]].concat();
        let noise = random(70_001);
        for (program, arguments) in [
            ("gzip", &["-c"][..]),
            ("zstd", &["-c"]),
            ("xz", &["-c"]),
            ("bzip2", &["-c"]),
            ("lz4", &["-c", "-q"]),
            ("lz4", &["-c", "-q", "-l"]),
        ] {
            let compress = |bytes: &[u8]| forerun_testkit::piped(program, arguments, bytes);
            let (Some(compressed), Some(other)) = (compress(&archive), compress(&noise)) else {
                return;
            };
            let file = [&noise[..], &other, b"--", &compressed, &noise].concat();
            let scanned = found(&file);
            let at = u64_from(noise.len() + other.len() + 2);
            let len = Some(u64_from(compressed.len()));
            let archive = scanned.findings.iter().find(|it| it.offset == at);
            let archive = archive.unwrap();
            // A legacy frame of LZ4 has no end.
            let is_same = archive.len == len || arguments.contains(&"-l");
            assert!(
                is_same && archive.kind == ScanKind::Image("tar"),
                "{archive:?}"
            );
            assert!(archive.details.contains(program), "{archive:?}");
        }
    }

    #[test]
    fn files_full_of_streams_end_soon() {
        for sign in [
            &b"\x1f\x8b\x08\0\0\0\0\0\0\xff"[..],
            b"\x28\xb5\x2f\xfd",
            b"\xfd7zXZ\0",
            b"BZh91AY&SY",
            b"\x04\x22\x4d\x18",
            b"\x02\x21\x4c\x18",
        ] {
            let bytes = sign.repeat((5 << 20) / sign.len());
            assert_eq!(found(&bytes).findings, [], "{sign:?}");
        }
    }

    #[test]
    fn archives_of_one_block_each_are_not_followed_twice() {
        // Every block is a member of one archive, even if archives inside archives are searched
        // for.
        let archive = member(b'0', b"").repeat(20_000);
        let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(&archive[..]));
        for all in [false, true] {
            let options = ScanOptions {
                all,
                ..ScanOptions::default()
            };
            let scanned = known(scan(&source, options).unwrap());
            let len = Some(u64_from(archive.len()));
            assert_eq!(places(&scanned), [(0, len, None)]);
        }
    }
}
