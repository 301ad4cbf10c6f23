//! The command line of `mkfs.erofs`.

use std::ffi::OsString;
use std::path::PathBuf;

use forerun::build::{Compression, ErofsFragments, ErofsOptions, FillEncoding, parse_time};
use forerun::vfs::Timestamp;
use regex::bytes::Regex;

use crate::getopt::{OptNames, Takes, split};
use crate::values::parse_uuid;

/// The options.
pub const TABLE: &[OptNames] = &[
    ('h', "help", Takes::Nothing),
    ('V', "version", Takes::Nothing),
    ('d', "", Takes::Value),
    ('x', "", Takes::Value),
    ('z', "", Takes::Value),
    ('C', "", Takes::Value),
    ('E', "", Takes::Value),
    ('T', "", Takes::Value),
    ('U', "", Takes::Value),
    ('L', "", Takes::Value),
    ('b', "", Takes::Value),
    ('\0', "all-root", Takes::Nothing),
    ('\0', "blobdev", Takes::Value),
    ('\0', "chunksize", Takes::Value),
    ('\0', "exclude-path", Takes::Value),
    ('\0', "exclude-regex", Takes::Value),
    ('\0', "force-uid", Takes::Value),
    ('\0', "force-gid", Takes::Value),
    ('\0', "ignore-mtime", Takes::Nothing),
    ('\0', "preserve-mtime", Takes::Nothing),
    ('\0', "max-extent-bytes", Takes::Value),
    ('\0', "quiet", Takes::Nothing),
    ('\0', "tar", Takes::Value),
    ('\0', "aufs", Takes::Nothing),
    ('\0', "xattr-prefix", Takes::Value),
    ('\0', "workers", Takes::Value),
];

/// A command line that can be followed.
#[derive(Debug)]
pub struct MkErofs {
    pub image: OsString,
    /// A directory or, with `tar`, an archive; standard input where there is none.
    pub source: Option<PathBuf>,
    pub tar: bool,
    pub aufs: bool,
    pub quiet: bool,
    pub options: ErofsOptions,
    pub blobdev: Option<PathBuf>,
    /// The time of all files.
    pub time: Option<Timestamp>,
    /// Files have the time of the image.
    pub ignores_times: bool,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub exclude_paths: Vec<Vec<u8>>,
    pub exclude_regexes: Vec<Regex>,
}

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
pub enum MkErofsRefusal {
    Help,
    Version,
    /// The message, before the usage.
    Usage(String),
    /// The message alone.
    Told(String),
}

type Read<T> = Result<T, MkErofsRefusal>;

fn refuse<T>(message: impl Into<String>) -> Read<T> {
    let message = message.into();
    Err(MkErofsRefusal::Usage(format!("<E> erofs: {message}")))
}

/// The command line as far as it was read.
#[derive(Default)]
struct Draft {
    quiet: bool,
    tar: bool,
    aufs: bool,
    codec: Option<(String, Option<u8>)>,
    cluster: Option<u32>,
    full_indexes: bool,
    inline_tails: bool,
    share_extents: bool,
    fragments: ErofsFragments,
    blobdev: Option<PathBuf>,
    time: Option<Timestamp>,
    ignores_times: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    exclude_paths: Vec<Vec<u8>>,
    exclude_regexes: Vec<Regex>,
    options: ErofsOptions,
}

/// Parses the words after the program's name.
pub fn parse(name: &str, words: &[OsString]) -> Read<MkErofs> {
    let split = split(words, TABLE)
        .map_err(|message| MkErofsRefusal::Usage(format!("{name}: {message}")))?;
    let mut draft = Draft::default();
    for given in &split.options {
        let (short, long, _) = TABLE.get(given.index).copied().unwrap_or(TABLE[0]);
        let value = given.value.as_deref().unwrap_or_default();
        let value = value.to_str();
        let Some(value) = value else {
            return refuse("a value that is not UTF-8");
        };
        match (short, long) {
            ('h', _) => return Err(MkErofsRefusal::Help),
            ('V', _) => return Err(MkErofsRefusal::Version),
            _ => draft.apply(short, long, value)?,
        }
    }
    let mut operands = split.operands.into_iter();
    let Some(image) = operands.next() else {
        return refuse("missing argument: FILE");
    };
    let source = operands.next().map(PathBuf::from);
    if let Some(more) = operands.next() {
        let more = more.to_string_lossy();
        return refuse(format!("unexpected argument: {more}\n"));
    }
    if source.is_none() && !draft.tar {
        return refuse("missing argument: DIRECTORY");
    }
    draft.finish(image, source)
}

impl Draft {
    fn apply(&mut self, short: char, long: &str, value: &str) -> Read<()> {
        match (short, long) {
            ('d', _) if !(0..=9).contains(&integer(value, "invalid debug level")?) => {
                return refuse(format!("invalid debug level {value}"));
            }
            ('x', _) => {
                let tolerance = integer(value, "invalid xattr tolerance")?;
                self.options.xattrs = tolerance >= 0;
                self.options.share_xattrs_above = u32::try_from(tolerance).unwrap_or(0);
            }
            ('z', _) => self.codec = Some(codec(value)?),
            ('C', _) => self.cluster = Some(power_of_two(value, "physical clustersize")?),
            ('b', _) => self.options.block_size = power_of_two(value, "block size")?,
            ('E', _) => value.split(',').try_for_each(|word| self.extended(word))?,
            ('T', _) => match value.parse::<i64>().is_ok().then(|| parse_time(value)) {
                Some(time) => self.time = time,
                None => return refuse(format!("invalid UNIX timestamp {value}")),
            },
            ('U', _) => self.uuid(value)?,
            ('L', _) if value.len() > 16 => {
                return refuse(format!("volume label {value} is longer than 16 bytes"));
            }
            ('L', _) => self.options.label = value.as_bytes().to_vec(),
            (_, "all-root") => (self.uid, self.gid) = (Some(0), Some(0)),
            (_, "blobdev") => self.blobdev = Some(PathBuf::from(value)),
            (_, "chunksize") => {
                self.options.chunk_size = Some(power_of_two(value, "chunksize")?);
            }
            (_, "exclude-path") => {
                self.exclude_paths
                    .push(value.trim_matches('/').as_bytes().to_vec());
            }
            (_, "exclude-regex") => match Regex::new(&format!("(?s-u){value}")) {
                Ok(regex) => self.exclude_regexes.push(regex),
                Err(_) => return refuse(format!("invalid exclude regex: {value}")),
            },
            (_, "force-uid") => self.uid = Some(id(value, "uid")?),
            (_, "force-gid") => self.gid = Some(id(value, "gid")?),
            (_, "ignore-mtime") => self.ignores_times = true,
            (_, "preserve-mtime") => self.ignores_times = false,
            (_, "max-extent-bytes" | "workers") => {
                let _accepted = integer(value, &format!("invalid {long}"))?;
            }
            (_, "quiet") => self.quiet = true,
            (_, "tar") if value == "f" || value == "0" => self.tar = true,
            (_, "tar") => return refuse(format!("--tar={value}: only --tar=f is supported")),
            (_, "aufs") => self.aufs = true,
            (_, "xattr-prefix") => {
                self.options.xattr_prefixes.push(value.as_bytes().to_vec());
            }
            _ => {}
        }
        Ok(())
    }

    fn uuid(&mut self, value: &str) -> Read<()> {
        self.options.uuid = match value {
            "clear" => Some([0; 16]),
            "random" => None,
            value => match parse_uuid(value) {
                Ok(uuid) => Some(uuid),
                Err(_) => return refuse(format!("invalid UUID {value}")),
            },
        };
        Ok(())
    }

    /// Applies a word of `-E`.
    fn extended(&mut self, word: &str) -> Read<()> {
        let name = word.split('=').next().unwrap_or(word);
        match name {
            "noinline_data" | "^inline_data" => self.options.inline_tails = false,
            "inline_data" => self.options.inline_tails = true,
            "legacy-compress" | "legacy-compact" => self.full_indexes = true,
            "ztailpacking" => self.inline_tails = true,
            "dedupe" => self.share_extents = true,
            "fragments" => self.fragments = ErofsFragments::Tails,
            "all-fragments" => self.fragments = ErofsFragments::All,
            // Short inodes have the time of the image.
            "force-inode-compact" => self.ignores_times = true,
            ""
            | "force-inode-extended"
            | "force-inode-blockmap"
            | "force-chunk-indexes"
            | "nosbcrc" => {}
            _ => return refuse(format!("unknown extended option {word}")),
        }
        Ok(())
    }

    fn finish(mut self, image: OsString, source: Option<PathBuf>) -> Read<MkErofs> {
        if let Some((name, level)) = &self.codec {
            let cluster_size = self.cluster.unwrap_or(self.options.block_size);
            let encoding = encoding(name, *level, cluster_size)?;
            self.options.compression = Some(Compression {
                cluster_size,
                // Fragments are another place for the same bytes.
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
            return Err(MkErofsRefusal::Told(format!("<E> erofs: {error}")));
        }
        Ok(MkErofs {
            image,
            source,
            tar: self.tar,
            aufs: self.aufs,
            quiet: self.quiet,
            options: self.options,
            blobdev: self.blobdev,
            time: self.time,
            ignores_times: self.ignores_times,
            uid: self.uid,
            gid: self.gid,
            exclude_paths: self.exclude_paths,
            exclude_regexes: self.exclude_regexes,
        })
    }
}

fn integer(value: &str, message: &str) -> Read<i64> {
    let number = value.parse();
    number.or_else(|_| refuse(format!("{message} {value}")))
}

fn id(value: &str, what: &str) -> Read<u32> {
    let number = value.parse().ok().filter(|id| *id < u32::MAX);
    number.map_or_else(|| refuse(format!("invalid {what} {value}")), Ok)
}

fn power_of_two(value: &str, what: &str) -> Read<u32> {
    let number = value.parse().ok();
    let number = number.filter(|size: &u32| size.is_power_of_two() && *size >= 512);
    number.map_or_else(|| refuse(format!("invalid {what} {value}")), Ok)
}

/// Parses a name with a level behind a comma, as `lz4hc,9` or `zstd,level=3`.
fn codec(value: &str) -> Read<(String, Option<u8>)> {
    let (name, rest) = match value.split_once(',') {
        Some((name, rest)) => (name, Some(rest)),
        None => (value, None),
    };
    let level = match rest.map(|rest| rest.strip_prefix("level=").unwrap_or(rest)) {
        None => None,
        Some(level) => match level.parse() {
            Ok(level) => Some(level),
            Err(_) => return refuse(format!("invalid compression level {level}")),
        },
    };
    Ok((name.to_string(), level))
}

fn encoding(name: &str, level: Option<u8>, cluster: u32) -> Read<FillEncoding> {
    let told = |message: String| {
        Err(MkErofsRefusal::Told(format!(
            "{message}<E> erofs: failed to initialize compressor: [Error 22] Invalid argument\n<E> erofs: \tCould not format the device : [Error 22] Invalid argument\n"
        )))
    };
    let within = |range: std::ops::RangeInclusive<u8>, default| match level.unwrap_or(default) {
        level if range.contains(&level) => Some(level),
        _ => None,
    };
    let found = match name {
        "lz4" if level.is_none() => Some(FillEncoding::Lz4),
        "lz4" => None,
        "lz4hc" => within(1..=12, 9).map(|level| FillEncoding::Lz4Hc { level }),
        "lzma" => within(0..=9, 6).map(|level| FillEncoding::MicroLzma {
            level,
            dictionary: cluster.saturating_mul(8).clamp(32 << 10, 8 << 20),
        }),
        "deflate" => within(1..=12, 1).map(|level| FillEncoding::Deflate { level }),
        "zstd" => within(1..=22, 3).map(|level| FillEncoding::Zstd {
            level,
            // The most that Linux takes.
            window_log: 20,
        }),
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
    fn every_option_is_documented() {
        crate::tests::documented("## mkfs.erofs", TABLE, false);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            &["-zfoo", "a", "b"][..],
            &["-zlz4,3", "a", "b"],
            &["-zlz4hc,99", "a", "b"],
            &["-C5000", "a", "b"],
            &["-Ebogus", "a", "b"],
            &["-U", "1", "a", "b"],
            &["-Tx", "a", "b"],
            &["--tar=i", "a"],
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
