//! Benchmarks of decoding and encoding blocks of 128 KiB: `cargo bench -p forerun-codec`.
#![allow(clippy::unwrap_used)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use forerun_codec::{Codec, Encoder, Encoding};

const BLOCK: usize = 128 << 10;
const CODECS: [Codec; 6] = [
    Codec::Zlib,
    Codec::Lzma,
    Codec::Lzo,
    Codec::Xz,
    Codec::Lz4,
    Codec::Zstd,
];

fn main() {
    divan::main();
}

/// Returns a block that compresses as text does.
fn block() -> Vec<u8> {
    let sources = include_bytes!("../src/lib.rs");
    sources.iter().copied().cycle().take(BLOCK).collect()
}

fn encoder(codec: Codec) -> Encoder {
    let encoding = Encoding::default_of(codec).unwrap();
    Encoder::new(&encoding, u32::try_from(BLOCK).unwrap()).unwrap()
}

#[divan::bench(args = CODECS)]
fn decode(bencher: Bencher<'_, '_>, codec: Codec) {
    let (mut stored, mut out) = (Vec::new(), vec![0; BLOCK]);
    assert!(encoder(codec).encode(&block(), &mut stored));
    let bencher = bencher.counter(BytesCount::new(BLOCK));
    bencher.bench_local(|| codec.decode(black_box(&stored), &mut out).unwrap());
}

#[divan::bench(args = CODECS)]
fn encode(bencher: Bencher<'_, '_>, codec: Codec) {
    let (block, mut encoder) = (block(), encoder(codec));
    let bencher = bencher.counter(BytesCount::new(BLOCK));
    bencher.bench_local(|| {
        let mut stored = Vec::new();
        assert!(encoder.encode(black_box(&block), &mut stored));
        stored
    });
}
