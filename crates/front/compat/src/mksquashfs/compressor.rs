//! The compressor of an image, from `-comp` and the options that begin with `-X`.

use std::ffi::OsStr;

use forerun::build::{
    Bcj, BcjSet, Encoding, LzmaTuning, LzoAlgorithm, ZlibStrategies, ZlibStrategy,
};

use super::call::{CompressorWord, MakeCall};
use crate::options::{Parsed, parse_number, parse_size, told};

/// The compressors and their options, as the usage shows them.
pub const COMPRESSORS: &[(&str, &str)] = &[
    (
        "gzip",
        "\t  -Xcompression-level N      1 to 9 [9]
\t  -Xwindow-size N            8 to 15 [15]
\t  -Xstrategy NAME,...        use the best of default, filtered, huffman_only,
\t                             run_length_encoded, fixed
",
    ),
    (
        "lzo",
        "\t  -Xalgorithm lzo1x_999      the only one here
\t  -Xcompression-level 8      the only one here
",
    ),
    (
        "lz4",
        "\t  -Xhc                       compress better and more slowly\n",
    ),
    (
        "xz",
        "\t  -Xbcj NAME,...             use the best of x86, arm, armthumb,
\t                             powerpc, sparc, arm64, riscv
\t  -Xdict-size BYTES|PERCENT  8192 to the block size [the block size]
\t  -Xpreset N, -Xe            preset of xz, 0 to 9 [6]; search longer
\t  -Xlc N, -Xlp N, -Xpb N     bits of literals and positions, 0 to 4 [3, 0, 2]
",
    ),
    ("zstd", "\t  -Xcompression-level N      1 to 22 [15]\n"),
    (
        "lzma",
        "\t  (no options) (deprecated - no kernel support)\n",
    ),
];

const STRATEGIES: &[(&str, ZlibStrategy)] = &[
    ("default", ZlibStrategy::Default),
    ("filtered", ZlibStrategy::Filtered),
    ("huffman_only", ZlibStrategy::HuffmanOnly),
    ("run_length_encoded", ZlibStrategy::RunLengthEncoded),
    ("fixed", ZlibStrategy::Fixed),
];

const FILTERS: &[(&str, Bcj)] = &[
    ("x86", Bcj::X86),
    ("powerpc", Bcj::PowerPc),
    ("ia64", Bcj::Ia64),
    ("arm", Bcj::Arm),
    ("armthumb", Bcj::ArmThumb),
    ("sparc", Bcj::Sparc),
    ("arm64", Bcj::Arm64),
    ("riscv", Bcj::RiscV),
];

const ALGORITHMS: &[(&str, LzoAlgorithm)] = &[
    ("lzo1x_1", LzoAlgorithm::Lzo1x1),
    ("lzo1x_1_11", LzoAlgorithm::Lzo1x1_11),
    ("lzo1x_1_12", LzoAlgorithm::Lzo1x1_12),
    ("lzo1x_1_15", LzoAlgorithm::Lzo1x1_15),
    ("lzo1x_999", LzoAlgorithm::Lzo1x999),
];

pub fn name(call: &MakeCall) -> &str {
    call.compressor.as_deref().unwrap_or("gzip")
}

/// Returns the codec with its options.
pub fn encoding(call: &MakeCall, program: &str) -> Parsed<Encoding> {
    let name = name(call);
    let Some((name, help)) = COMPRESSORS.iter().find(|(known, _)| *known == name) else {
        let known: String = COMPRESSORS
            .iter()
            .map(|(name, _)| available(name))
            .collect();
        return told(format!(
            "{program}: Compressor \"{name}\" is not supported!\nmksquashfs: Compressors available:\n{}",
            known.trim_end_matches('\n')
        ));
    };
    let mut options = Options::default();
    for word in &call.compressor_words {
        if !options.apply(name, word, call.block_size)? {
            let (word, help) = (&word.0, help.trim_end_matches('\n'));
            let selected =
                format!("mksquashfs: selected compressor \"{name}\".  Options supported: \n{help}");
            return match word.as_str() {
                "Xhelp" => told(selected),
                word => told(format!(
                    "mksquashfs: Unrecognised compressor option -{word}\n{selected}"
                )),
            };
        }
    }
    Ok(options.encoding(name))
}

fn available(name: &str) -> String {
    match name {
        "gzip" => format!("\t{name} (default)\n"),
        _ => format!("\t{name}\n"),
    }
}

/// The options of all compressors.
#[derive(Default)]
struct Options {
    level: Option<u8>,
    window: Option<u8>,
    strategies: ZlibStrategies,
    algorithm: LzoAlgorithm,
    high: bool,
    filters: BcjSet,
    dictionary: Option<u32>,
    tuning: LzmaTuning,
}

impl Options {
    /// Applies an option. Returns whether the compressor has it.
    fn apply(&mut self, compressor: &str, word: &CompressorWord, block: u32) -> Parsed<bool> {
        let (option, value) = word;
        let value = |what: &str| match value {
            Some(value) => Ok(value.as_os_str()),
            None => told(format!("{compressor}: -{option} missing {what}")),
        };
        match (compressor, option.as_str()) {
            ("gzip" | "lzo", "Xcompression-level") => {
                let range = "it should be 1 >= n <= 9";
                let value = value(&format!(
                    "compression level\n{compressor}: -{option} {range}"
                ))?;
                self.level = Some(within(compressor, option, value, 1..=9, range)?);
            }
            ("zstd", "Xcompression-level") => {
                let range = "it should be 1 <= n <= 22";
                let value = value(&format!("compression level\nzstd: -{option} {range}"))?;
                self.level = Some(within(compressor, option, value, 1..=22, range)?);
            }
            ("gzip", "Xwindow-size") => {
                let range = "it should be 8 >= n <= 15";
                let value = value("window \tsize\ngzip: -Xwindow-size <window-size>")?;
                self.window = Some(within(compressor, option, value, 8..=15, range)?);
            }
            ("gzip", "Xstrategy") => {
                let chosen = named(value("strategies")?, STRATEGIES);
                match chosen {
                    Some(chosen) => self.strategies = chosen.into_iter().collect(),
                    None => return told("gzip: -Xstrategy unrecognised strategy"),
                }
            }
            ("lzo", "Xalgorithm") => {
                let chosen = named(value("algorithm")?, ALGORITHMS);
                match chosen.as_deref() {
                    Some([one]) => self.algorithm = *one,
                    _ => return told("lzo: -Xalgorithm unrecognised algorithm"),
                }
            }
            ("lz4", "Xhc") => self.high = true,
            ("xz", "Xbcj") => match named(value("filter")?, FILTERS) {
                Some(chosen) => self.filters = chosen.into_iter().collect(),
                None => return told("xz: -Xbcj unrecognised filter"),
            },
            ("xz", "Xe") => self.tuning.extreme = true,
            ("xz", "Xpreset" | "Xlc" | "Xlp" | "Xpb") => {
                let place = match option.as_str() {
                    "Xpreset" => &mut self.tuning.preset,
                    "Xlc" => &mut self.tuning.lc,
                    "Xlp" => &mut self.tuning.lp,
                    _ => &mut self.tuning.pb,
                };
                let most = if option == "Xpreset" { 9 } else { 4 };
                let range = format!("it should be 0 <= n <= {most}");
                let value = value("value")?;
                *place = Some(within(compressor, option, value, 0..=most, &range)?);
            }
            ("xz", "Xdict-size") => self.dictionary = Some(dictionary(value("dict-size")?, block)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn encoding(self, compressor: &str) -> Encoding {
        match compressor {
            "lzo" => Encoding::Lzo {
                algorithm: self.algorithm,
                level: self.level.unwrap_or(8),
            },
            "lz4" => Encoding::Lz4 { high: self.high },
            "xz" => Encoding::Xz {
                dictionary: self.dictionary,
                filters: self.filters,
                tuning: self.tuning,
            },
            "zstd" => Encoding::Zstd {
                level: self.level.unwrap_or(15),
            },
            "lzma" => Encoding::Lzma,
            _ => Encoding::Zlib {
                level: self.level.unwrap_or(9),
                window_bits: self.window.unwrap_or(15),
                strategies: self.strategies,
            },
        }
    }
}

fn within(
    compressor: &str,
    option: &str,
    value: &OsStr,
    range: std::ops::RangeInclusive<u8>,
    text: &str,
) -> Parsed<u8> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    match number.filter(|number| range.contains(number)) {
        Some(number) => Ok(number),
        None => told(format!("{compressor}: -{option} invalid, {text}")),
    }
}

/// Converts a list with commas to its values; `None` if a name is unknown.
fn named<T: Copy>(list: &OsStr, known: &[(&str, T)]) -> Option<Vec<T>> {
    let find = |name: &str| {
        let mut known = known.iter();
        known
            .find(|(known, _)| *known == name)
            .map(|(_, item)| *item)
    };
    list.to_str()?.split(',').map(find).collect()
}

/// Parses a dictionary size: bytes, or a percentage of a block.
fn dictionary(value: &OsStr, block: u32) -> Parsed<u32> {
    const UNSUPPORTED: &str =
        "xz: -Xdict-size is an unsupported value, dict-size must be storable in xz header
as either 2^n or as 2^n+2^(n+1).  Example dict-sizes are 75%, 50%, 37.5%, 25%,
or 32K, 16K, 8K etc.";
    let invalid = "xz: -Xdict-size invalid dict-size";
    let text = value.to_str().unwrap_or_default();
    let bytes = match text.strip_suffix('%') {
        Some(percent) => {
            let (whole, tenths) = percent.split_once('.').unwrap_or((percent, "0"));
            let whole: Option<u64> = parse_number(OsStr::new(whole)).filter(|whole| *whole <= 100);
            let tenth: Option<u64> = parse_number(OsStr::new(tenths)).filter(|tenth| *tenth <= 9);
            let share = whole.zip(tenth).filter(|_| tenths.len() == 1);
            share.map(|(whole, tenth)| u64::from(block) * (whole * 10 + tenth) / 1000)
        }
        None => parse_size(value),
    };
    let bytes = match bytes.map(u32::try_from) {
        Some(Ok(bytes)) if bytes <= block => bytes,
        Some(Ok(bytes)) if bytes < 1 << 30 => {
            return told("xz: -Xdict-size is larger than block_size");
        }
        _ => return told(invalid),
    };
    if bytes < 8192 {
        return told("xz: -Xdict-size should be 8192 bytes or larger");
    }
    let is_storable =
        bytes.is_power_of_two() || (bytes.is_multiple_of(3) && (bytes / 3).is_power_of_two());
    if is_storable {
        Ok(bytes)
    } else {
        told(UNSUPPORTED)
    }
}
