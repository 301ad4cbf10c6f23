//! The command line of `mkfs.erofs`.

use std::ffi::OsString;
use std::path::PathBuf;

use forerun::build::{Compression, ErofsFragments, ErofsOptions, FillEncoding, parse_time};
use forerun::vfs::Timestamp;
use regex::bytes::Regex;

use crate::options::Effect::{Help, Nothing, Perhaps, Set, Value, Version};
use crate::options::{self, Opt, Parsed, Refusal, apply_list, getopt, options};
use crate::values::parse_uuid;

pub const TABLE: &[Opt<Draft>] = options! {
    "-h" | "--help" => Help;
    "-V" | "--version" => Version;
    "-d" => Value("", |_, value| match integer(utf8(value)?, "invalid debug level")? {
        0..=9 => Ok(()),
        level => refuse(format!("invalid debug level {level}")),
    });
    "-x" => Value("", |draft, value| {
        let tolerance = integer(utf8(value)?, "invalid xattr tolerance")?;
        draft.options.xattrs = tolerance >= 0;
        draft.options.share_xattrs_above = u32::try_from(tolerance).unwrap_or(0);
        Ok(())
    });
    "-z" => Value("", |draft, value| {
        draft.codec = Some(codec(utf8(value)?)?);
        Ok(())
    });
    "-C" => Value("", |draft, value| {
        draft.cluster = Some(power_of_two(utf8(value)?, "physical clustersize")?);
        Ok(())
    });
    "-b" => Value("", |draft, value| {
        draft.options.block_size = power_of_two(utf8(value)?, "block size")?;
        Ok(())
    });
    "-E" => Value("", |draft, value| {
        // Values that only newer versions know are ignored.
        let text = utf8(value)?;
        let names: Vec<_> = text.split(',').filter_map(|word| word.split('=').next()).collect();
        apply_list(EXTENDED, &names.join(","), draft, |_, name| refuse(format!("unknown extended option {name}")))
    });
    "-T" => Value("", |draft, value| {
        let text = utf8(value)?;
        integer(text, "invalid UNIX timestamp")?;
        draft.time = parse_time(text);
        Ok(())
    });
    "-U" => Value("", |draft, value| {
        draft.options.uuid = uuid(utf8(value)?)?;
        Ok(())
    });
    "-L" => Value("", |draft, value| {
        draft.options.label = label(utf8(value)?)?;
        Ok(())
    });
    "--all-root" => Set(|draft| (draft.uid, draft.gid) = (Some(0), Some(0)));
    "--blobdev" => Value("", |draft, value| value.set(&mut draft.blobdev));
    "--chunksize" => Value("", |draft, value| {
        draft.options.chunk_size = Some(power_of_two(utf8(value)?, "chunksize")?);
        Ok(())
    });
    "--exclude-path" => Value("", |draft, value| {
        draft.exclude_paths.push(utf8(value)?.trim_matches('/').as_bytes().to_vec());
        Ok(())
    });
    "--exclude-regex" => Value("", |draft, value| match Regex::new(&format!("(?s-u){}", utf8(value)?)) {
        Ok(regex) => {
            draft.exclude_regexes.push(regex);
            Ok(())
        }
        Err(_) => refuse(format!("invalid exclude regex: {}", value.text())),
    });
    "--force-uid" => Value("", |draft, value| {
        draft.uid = Some(id(utf8(value)?, "uid")?);
        Ok(())
    });
    "--force-gid" => Value("", |draft, value| {
        draft.gid = Some(id(utf8(value)?, "gid")?);
        Ok(())
    });
    "--uid-offset" => Value("", |draft, value| {
        draft.uid_offset = id(utf8(value)?, "uid offset")?;
        Ok(())
    });
    "--gid-offset" => Value("", |draft, value| {
        draft.gid_offset = id(utf8(value)?, "gid offset")?;
        Ok(())
    });
    "--hard-dereference" => Set(|draft| draft.separates_links = true);
    "--ignore-mtime" => Set(|draft| draft.ignores_times = true);
    "--preserve-mtime" => Set(|draft| draft.ignores_times = false);
    "--mkfs-time" => Set(|draft| draft.only_image_time = true);
    "--all-time" => Set(|draft| draft.only_image_time = false);
    "--offset" => Value("", |draft, value| {
        draft.offset = value.number().or_else(|_| refuse(format!("invalid disk offset {}", value.text())))?;
        Ok(())
    });
    // A prefix for lists of owners and labels of Android, which are refused.
    "--mount-point" => Value("", |_, _| Ok(()));
    "--sort" => Value("", |_, value| match value.text().as_str() {
        "none" | "path" => Ok(()),
        order => refuse(format!("--sort={order}: only none and path are supported")),
    });
    // Compression is recognised by the contents.
    "--ungzip" | "--unxz" => Perhaps(|_, _| {});
    "--max-extent-bytes" => Value("", |_, value| integer(utf8(value)?, "invalid max-extent-bytes").map(drop));
    "--workers" => Value("", |_, value| integer(utf8(value)?, "invalid workers").map(drop));
    "--quiet" => Set(|draft| draft.quiet = true);
    "--tar" => Value("", |draft, value| {
        draft.tar = true;
        draft.only_index = value.given == "i" || value.given == "0";
        if draft.only_index || value.given == "f" {
            return Ok(());
        }
        refuse(format!("--tar={}: only f and i are supported", value.text()))
    });
    "--aufs" => Set(|draft| draft.aufs = true);
    "--ovlfs-strip" => Perhaps(|draft, value| draft.strips_whiteouts = value.is_none_or(|value| value == "1"));
    "--xattr-prefix" => Value("", |draft, value| {
        draft.options.xattr_prefixes.push(value.given.as_encoded_bytes().to_vec());
        Ok(())
    });
};

/// The arguments of `-E`.
pub const EXTENDED: &[Opt<Draft>] = options! {
    "noinline_data" | "^inline_data" => Set(|draft| draft.options.inline_tails = false);
    "inline_data" => Set(|draft| draft.options.inline_tails = true);
    "legacy-compress" | "legacy-compact" => Set(|draft| draft.full_indexes = true);
    "ztailpacking" => Set(|draft| draft.inline_tails = true);
    "dedupe" => Set(|draft| draft.share_extents = true);
    "fragments" => Set(|draft| draft.fragments = ErofsFragments::Tails);
    "all-fragments" => Set(|draft| draft.fragments = ErofsFragments::All);
    // Compact inodes have the time of the image.
    "force-inode-compact" => Set(|draft| draft.ignores_times = true);
    // There is one way to find equal fragments here, and images of this size need no longer addresses.
    "fragdedupe" | "48bit" | "^48bit" => Nothing;
    "force-inode-extended" | "force-inode-blockmap" | "force-chunk-indexes" | "nosbcrc" => Nothing;
};

/// A valid command line.
#[derive(Debug)]
pub struct MkErofs {
    pub image: OsString,
    /// A directory, images to merge or, with `tar`, an archive. Empty means standard input.
    pub sources: Vec<PathBuf>,
    pub tar: bool,
    /// Refers to the data in the archive instead of copying it.
    pub only_index: bool,
    pub aufs: bool,
    pub quiet: bool,
    pub options: ErofsOptions,
    pub blobdev: Option<PathBuf>,
    /// The time of all files.
    pub time: Option<Timestamp>,
    /// The bytes before the image in its file.
    pub offset: u64,
    pub uid_offset: u32,
    pub gid_offset: u32,
    /// Each name of a file is a file of its own.
    pub separates_links: bool,
    pub strips_whiteouts: bool,
    /// All files have the time of the image.
    pub ignores_times: bool,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub exclude_paths: Vec<Vec<u8>>,
    pub exclude_regexes: Vec<Regex>,
}

fn refuse<T>(message: impl Into<String>) -> Parsed<T> {
    let message = message.into();
    Err(Refusal::Usage(format!("<E> erofs: {message}")))
}

/// The options parsed so far.
#[derive(Default)]
pub struct Draft {
    quiet: bool,
    tar: bool,
    only_index: bool,
    aufs: bool,
    codec: Option<CodecWord>,
    cluster: Option<u32>,
    full_indexes: bool,
    inline_tails: bool,
    share_extents: bool,
    fragments: ErofsFragments,
    blobdev: Option<PathBuf>,
    time: Option<Timestamp>,
    only_image_time: bool,
    offset: u64,
    uid_offset: u32,
    gid_offset: u32,
    separates_links: bool,
    strips_whiteouts: bool,
    ignores_times: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    exclude_paths: Vec<Vec<u8>>,
    exclude_regexes: Vec<Regex>,
    options: ErofsOptions,
}

/// Parses the arguments after the program's name.
pub fn parse(name: &str, words: &[OsString]) -> Parsed<MkErofs> {
    let mut draft = Draft::default();
    let operands = getopt(name, TABLE, words, &mut draft)?;
    let mut operands = operands.into_iter();
    let Some(image) = operands.next() else {
        return refuse("missing argument: FILE");
    };
    let sources: Vec<_> = operands.map(PathBuf::from).collect();
    let merges = draft.strips_whiteouts && !draft.tar;
    if let Some(more) = sources.get(1).filter(|_| !merges) {
        let more = more.to_string_lossy();
        return refuse(format!("unexpected argument: {more}\n"));
    }
    if sources.is_empty() && !draft.tar {
        return refuse("missing argument: DIRECTORY");
    }
    draft.finish(image, sources)
}

impl Draft {
    fn finish(mut self, image: OsString, sources: Vec<PathBuf>) -> Parsed<MkErofs> {
        if self.only_index {
            // Data in an archive starts at multiples of this.
            self.options.block_size = 512;
        }
        if let Some(codec) = &self.codec {
            let cluster_size = self.cluster.unwrap_or(self.options.block_size);
            let encoding = encoding(codec, cluster_size)?;
            self.options.compression = Some(Compression {
                cluster_size,
                // Fragments and inline tails exclude each other, because both store the ends of
                // files.
                inline_tails: self.inline_tails && self.fragments == ErofsFragments::None,
                full_indexes: self.full_indexes,
                share_extents: self.share_extents,
                fragments: self.fragments,
                ..Compression::new(encoding)
            });
        }
        if let Some(time) = self.time {
            self.options.mkfs_time = Some(time.seconds);
        }
        if let Err(error) = self.options.validate() {
            return Err(Refusal::Told(format!("<E> erofs: {error}")));
        }
        Ok(MkErofs {
            image,
            sources,
            tar: self.tar,
            only_index: self.only_index,
            aufs: self.aufs,
            quiet: self.quiet,
            options: self.options,
            blobdev: self.blobdev,
            time: self.time.filter(|_| !self.only_image_time),
            offset: self.offset,
            uid_offset: self.uid_offset,
            gid_offset: self.gid_offset,
            separates_links: self.separates_links,
            strips_whiteouts: self.strips_whiteouts,
            ignores_times: self.ignores_times,
            uid: self.uid,
            gid: self.gid,
            exclude_paths: self.exclude_paths,
            exclude_regexes: self.exclude_regexes,
        })
    }
}

fn utf8<'v>(value: &'v options::Value<'_>) -> Parsed<&'v str> {
    let text = value.given.to_str();
    text.map_or_else(|| refuse("a value that is not UTF-8"), Ok)
}

fn uuid(value: &str) -> Parsed<Option<[u8; 16]>> {
    match value {
        "clear" => Ok(Some([0; 16])),
        "random" => Ok(None),
        value => match parse_uuid(value) {
            Ok(uuid) => Ok(Some(uuid)),
            Err(_) => refuse(format!("invalid UUID {value}")),
        },
    }
}

fn label(value: &str) -> Parsed<Vec<u8>> {
    if value.len() > 16 {
        return refuse(format!("volume label {value} is longer than 16 bytes"));
    }
    Ok(value.as_bytes().to_vec())
}

fn integer(value: &str, message: &str) -> Parsed<i64> {
    let number = value.parse();
    number.or_else(|_| refuse(format!("{message} {value}")))
}

fn id(value: &str, what: &str) -> Parsed<u32> {
    let number = value.parse().ok().filter(|id| *id < u32::MAX);
    number.map_or_else(|| refuse(format!("invalid {what} {value}")), Ok)
}

fn power_of_two(value: &str, what: &str) -> Parsed<u32> {
    let number = value.parse().ok();
    let number = number.filter(|size: &u32| size.is_power_of_two() && *size >= 512);
    number.map_or_else(|| refuse(format!("invalid {what} {value}")), Ok)
}

/// The value of `-z`.
#[derive(Debug, Default)]
pub struct CodecWord {
    name: String,
    level: Option<u8>,
    dictionary: Option<u32>,
}

/// Parses a name with its options, as `lz4hc,9` or `zstd,level=3,dictsize=65536`.
fn codec(value: &str) -> Parsed<CodecWord> {
    let mut words = value.split(',');
    let mut codec = CodecWord {
        name: words.next().unwrap_or_default().to_string(),
        ..CodecWord::default()
    };
    for word in words {
        if let Some(bytes) = word.strip_prefix("dictsize=") {
            codec.dictionary = match bytes.parse() {
                Ok(bytes) => Some(bytes),
                Err(_) => return refuse(format!("invalid dictionary size {bytes}")),
            };
            continue;
        }
        let level = word.strip_prefix("level=").unwrap_or(word);
        codec.level = match level.parse() {
            Ok(level) => Some(level),
            Err(_) => return refuse(format!("invalid compression level {level}")),
        };
    }
    Ok(codec)
}

fn encoding(codec: &CodecWord, cluster: u32) -> Parsed<FillEncoding> {
    let told = |message: String| {
        Err(Refusal::Told(format!(
            "{message}<E> erofs: failed to initialize compressor: [Error 22] Invalid argument\n<E> erofs: \tCould not format the device : [Error 22] Invalid argument\n"
        )))
    };
    let CodecWord {
        name,
        level,
        dictionary,
    } = codec;
    let within = |range: std::ops::RangeInclusive<u8>, default| {
        let level = level.unwrap_or(default);
        range.contains(&level).then_some(level)
    };
    let found = match name.as_str() {
        "lz4" if level.is_none() && dictionary.is_none() => Some(FillEncoding::Lz4),
        "lz4hc" if dictionary.is_none() => {
            within(1..=12, 9).map(|level| FillEncoding::Lz4Hc { level })
        }
        "lz4" | "lz4hc" => None,
        "lzma" => {
            let dictionary = dictionary.unwrap_or_else(|| {
                let eight = u64::from(cluster) * 8;
                u32::try_from(eight.clamp(32 << 10, 8 << 20)).unwrap_or(8 << 20)
            });
            // Levels from 100 on are those below that search longer, which the encoder here does not.
            let level = match level.unwrap_or(6) {
                level @ 100..=109 => Some(level - 100),
                level => (level <= 9).then_some(level),
            };
            level.map(|level| FillEncoding::MicroLzma { level, dictionary })
        }
        "deflate" if dictionary.is_none_or(|bytes| bytes <= 32 << 10) => {
            within(1..=12, 1).map(|level| FillEncoding::Deflate { level })
        }
        "deflate" => None,
        "zstd" => {
            // The largest window that Linux supports.
            let dictionary = dictionary.unwrap_or(1 << 20);
            let window_log = match dictionary.checked_ilog2() {
                Some(log @ 10..=20) if dictionary.is_power_of_two() => u8::try_from(log).ok(),
                _ => None,
            };
            let level = within(1..=22, 3);
            level
                .zip(window_log)
                .map(|(level, window_log)| FillEncoding::Zstd { level, window_log })
        }
        _ => {
            return told(format!(
                "<E> erofs: Cannot find a valid compressor {name}\n"
            ));
        }
    };
    found.map_or_else(|| told(String::new()), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            &["-zfoo", "a", "b"][..],
            &["-zlz4,3", "a", "b"],
            &["-zlz4hc,99", "a", "b"],
            &["-C5000", "a", "b"],
            &["-Ebogus", "a", "b"],
            &["-zlzma,110", "a", "b"],
            &["-zlzma,dictsize=x", "a", "b"],
            &["-zlzma,dictsize=16777216", "a", "b"],
            &["-zzstd,dictsize=100000", "a", "b"],
            &["-zlz4,dictsize=4096", "a", "b"],
            &["--sort=size", "a", "b"],
            &["--offset=-1", "a", "b"],
            &["-U", "1", "a", "b"],
            &["-Tx", "a", "b"],
            &["--tar=headerball", "a"],
            &["--ovlfs-strip=0", "a", "b", "c"],
            &["--compress-hints=x", "a", "b"],
            &["--force-uid=-1", "a", "b"],
            &["--exclude-regex=(", "a", "b"],
            &["a"],
            &["a", "b", "c"],
            &[],
        ] {
            let words: Vec<_> = line.iter().map(OsString::from).collect();
            assert!(parse("mkfs.erofs", &words).is_err(), "{line:?}");
        }
        let words = ["--tar=f", "--aufs", "--quiet", "-Enoinline_data", "out"].map(OsString::from);
        let call = parse("mkfs.erofs", &words).unwrap();
        assert!(call.tar && call.aufs && call.quiet && !call.options.inline_tails);
    }
}
