//! Options of encoders and writers, made from the bytes of a fuzzer. Most are in range, a few are
//! not.

use forerun::build::{
    Bcj, Compress, Compression, Encoding, ErofsFragments, ErofsOptions, FillEncoding, Fragments,
    LzmaTuning, LzoAlgorithm, SquashfsOptions, ZlibStrategy,
};

use crate::input::Input;

pub fn encoding(input: &mut Input<'_>) -> Encoding {
    match input.byte() % 6 {
        0 => {
            let bits = input.byte();
            let members = ZlibStrategy::ALL.iter().copied();
            Encoding::Zlib {
                level: input.byte() % 11,
                window_bits: 7 + input.byte() % 10,
                strategies: members
                    .filter(|one| u16::from(bits) & one.bit() != 0)
                    .collect(),
            }
        }
        1 => Encoding::Lzma,
        2 => Encoding::Lzo {
            algorithm: LzoAlgorithm::default(),
            level: 8,
        },
        3 => {
            let bits = input.byte();
            let members = Bcj::ALL.iter().copied().filter(|one| *one != Bcj::Ia64);
            Encoding::Xz {
                dictionary: input
                    .flag()
                    .then(|| input.one_of(&[4096, 8192, 12_288, 16_384, 65_536])),
                filters: members
                    .filter(|one| u16::from(bits) & one.bit() != 0)
                    .collect(),
                tuning: LzmaTuning::default(),
            }
        }
        4 => Encoding::Lz4 { high: input.flag() },
        // Levels from 20 on need megabytes.
        _ => Encoding::Zstd {
            level: input.byte() % 20,
        },
    }
}

pub fn fill_encoding(input: &mut Input<'_>) -> FillEncoding {
    match input.byte() % 5 {
        0 => FillEncoding::Lz4,
        1 => FillEncoding::Lz4Hc {
            level: input.byte() % 14,
        },
        2 => FillEncoding::MicroLzma {
            level: input.byte() % 10,
            dictionary: input.one_of(&[0, 4096, 5000, 32_768, 65_536]),
        },
        3 => FillEncoding::Deflate {
            level: input.byte() % 14,
        },
        _ => FillEncoding::Zstd {
            level: input.byte() % 20,
            window_log: 9 + input.byte() % 9,
        },
    }
}

pub fn squashfs(input: &mut Input<'_>) -> SquashfsOptions {
    let flags = input.word();
    let is = |bit: u16| flags & (1 << bit) == 0;
    SquashfsOptions {
        encoding: encoding(input),
        block_size: input.one_of(&[4096, 4096, 8192, 131_072]),
        fragments: input.one_of(&[Fragments::Yes, Fragments::No, Fragments::Always]),
        duplicates: is(0),
        sparse: is(1),
        exportable: is(2),
        compress: Compress {
            inodes: is(3),
            data: is(4),
            fragments: is(5),
            ids: is(6),
            xattrs: is(7),
        },
        pad: is(8),
        mkfs_time: None,
        threads: 1,
        ..SquashfsOptions::default()
    }
}

pub fn erofs(input: &mut Input<'_>) -> ErofsOptions {
    let block_size = input.one_of(&[512, 1024, 4096, 4096, 65_536]);
    let flags = input.word();
    let is = |bit: u16| flags & (1 << bit) != 0;
    let mut options = ErofsOptions {
        block_size,
        inline_tails: !is(0),
        duplicates: !is(1),
        share_xattrs_above: input.byte().into(),
        threads: 1,
        ..ErofsOptions::default()
    };
    if is(2) {
        options.xattr_prefixes = vec![b"trusted.overlay.".to_vec(), b"user.a".to_vec()];
    }
    match input.byte() % 4 {
        0 => {}
        1 => options.chunk_size = Some(block_size << (input.byte() % 3)),
        _ => {
            options.compression = Some(Compression {
                cluster_size: block_size << (input.byte() % 3),
                inline_tails: is(3),
                full_indexes: is(4),
                share_extents: is(5),
                fragments: input.one_of(&[
                    ErofsFragments::None,
                    ErofsFragments::Tails,
                    ErofsFragments::All,
                ]),
                ..Compression::new(fill_encoding(input))
            });
        }
    }
    options
}
