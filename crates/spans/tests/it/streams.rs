//! Zstandard, XZ and bzip2: short frames become spans, everything else is in a temporary file.

use std::sync::Arc;

use forerun_io::Limits;
use forerun_vfs::Error;

use crate::common::{Temporary, assert_decodes, options, pass, run, text};

fn limits(block_len: u32) -> Limits {
    let mut limits = Limits::default();
    limits.block_len = block_len;
    limits
}

#[test]
fn short_frames_are_blocks_and_long_ones_are_spooled() {
    let bytes = text(600_000);
    let mut stream = Vec::new();
    let mut options = options(1);
    options.limits = limits(150_000);
    let parts = [
        &bytes[..100_000],
        &bytes[100_000..500_000],
        &bytes[500_000..],
    ];
    for (part, arguments) in
        parts
            .into_iter()
            .zip([&["-c"][..], &["-c", "--no-check"], &["-c", "-19"]])
    {
        let Some(frame) = run("zstd", arguments, part) else {
            return;
        };
        // A skippable frame before each frame.
        stream.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        stream.extend(frame);
    }
    assert_eq!(assert_decodes(&stream, &bytes, &options), 3);
    let (indexed, _) = pass(&stream, &options).unwrap();
    assert_eq!(indexed.spool.unwrap().len(), 400_000);
    options.limits = limits(1 << 20);
    assert_eq!(assert_decodes(&stream, &bytes, &options), 3);
    let (indexed, _) = pass(&stream, &options).unwrap();
    assert!(indexed.spool.is_none());
}

#[test]
fn streams_of_xz_and_bzip2_are_spooled_one_after_the_other() {
    let bytes = text(400_000);
    for program in ["xz", "bzip2"] {
        let (first, second) = bytes.split_at(123_456);
        let (Some(first), Some(second)) =
            (run(program, &["-c"], first), run(program, &["-c"], second))
        else {
            return;
        };
        let padding = if program == "xz" { &[0; 8][..] } else { &[] };
        let stream = [&first, padding, &second].concat();
        assert_eq!(assert_decodes(&stream, &bytes, &options(1)), 1, "{program}");
        let (indexed, _) = pass(&[&stream[..], b"garbage"].concat(), &options(1)).unwrap();
        assert_eq!(indexed.trailing, Some(u64::try_from(stream.len()).unwrap()));
    }
}

#[test]
fn without_a_place_for_a_spool_the_stream_is_refused_by_name() {
    let Some(stream) = run("xz", &["-c"], &text(1000)) else {
        return;
    };
    let mut options = options(1);
    options.spool = None;
    let error = pass(&stream, &options).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("xz in one piece"), "{error}");
    options.spool = Some(Arc::new(Temporary));
    assert!(pass(&stream, &options).is_ok());
}
