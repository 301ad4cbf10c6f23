//! The command lines of `mksquashfs` and `sqfstar`: options with one dash.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use forerun::build::{
    Compress, Fragments, OtherFilesystems, group_id, parse_time, parse_xattr, user_id,
};

use super::call::{Definition, MakeCall, MakeTime};
use super::changes;
use super::mode::ModeChange;
use crate::extended::expression;
use crate::options::Effect::{Help, Nothing, Set, Value, Version, Word};
use crate::options::{self, Grammar, Opt, Options, Parsed, Refusal, options};

/// The program of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Sources and the image, then options.
    Mksquashfs,
    /// Options, then the image and the excludes.
    Sqfstar,
}

const TIME: &str = "{} missing or invalid time value";
const UID: &str = "{} missing or invalid uid";
const GID: &str = "{} missing or invalid gid";
const FILE: &str = "{} missing filename";
const REGEX: &str = "{} missing regex pattern";
const MODE: &str = "{} missing or invalid mode, octal number <= 07777 expected";

/// The options of both programs.
pub const TABLE: &[Opt<MakeCall>] = options! {
    "-version" => Version;
    "-help" | "-h" | "-help-all" | "-ha" => Help;
    "-comp" => Value("{} missing compression type", |call, value| {
        call.compressor = Some(value.text());
        Ok(())
    });
    "-X*" => Word(|call, word, words| {
        let takes_value = !["-Xhc", "-Xe", "-Xhelp"].contains(&word);
        let value = if takes_value { words.next() } else { None };
        call.compressor_words.push((word[1..].to_string(), value.cloned()));
        Ok(())
    });
    "-b" => Value("{} missing block size", |call, value| {
        call.block_size = block_size(value)?;
        Ok(())
    });
    "-mkfs-time" | "-fstime" => Value(TIME, |call, value| {
        call.mkfs_time = Some(time(value)?);
        Ok(())
    });
    "-all-time" | "-inode-time" => Value(TIME, |call, value| {
        call.all_time = Some(time(value)?);
        Ok(())
    });
    "-root-time" => Value("{} missing or invalid time", |call, value| {
        call.root_time = Some(time(value)?);
        Ok(())
    });
    "-repro" => Set(|call| call.mkfs_time = Some(MakeTime::Latest));
    "-repro-time" => Value(TIME, |call, value| {
        call.mkfs_time = Some(time(value)?);
        call.all_time = call.mkfs_time;
        Ok(())
    });
    "-root-mode" => Value(MODE, |call, value| {
        call.root_mode = Some(mode(value)?);
        Ok(())
    });
    "-force-file-mode" => Value(MODE, |call, value| {
        call.file_mode = Some(mode(value)?);
        Ok(())
    });
    "-force-dir-mode" => Value(MODE, |call, value| {
        call.dir_mode = Some(mode(value)?);
        Ok(())
    });
    "-root-uid" => Value(UID, |call, value| {
        call.root_uid = user_id(value.given.as_bytes());
        known(call.root_uid, value, "-root-uid missing or invalid uid")
    });
    "-root-gid" => Value(GID, |call, value| {
        call.root_gid = group_id(value.given.as_bytes());
        known(call.root_gid, value, "-root-gid missing or invalid gid")
    });
    "-uid-gid-offset" => Value("{} missing or invalid value", |call, value| {
        call.owner_offset = value.number()?;
        Ok(())
    });
    "-pseudo-override" => Set(|call| call.definitions_last = true);
    "-p" => Value("{} missing pseudo file definition", |call, value| {
        call.definitions.push(Definition::Line(value.given.as_bytes().to_vec()));
        Ok(())
    });
    "-pd" | "-pseudo-dir" => Value("{} missing pseudo dir definition", |call, value| {
        call.definitions.push(Definition::MissingDirectories(value.given.as_bytes().to_vec()));
        Ok(())
    });
    "-pf" => Value(FILE, |call, value| {
        call.definitions.push(Definition::File(value.given.into()));
        Ok(())
    });
    "-force-uid" => Value("{} missing uid or user", |call, value| {
        call.uid = user_id(value.given.as_bytes());
        known(call.uid, value, "-force-uid invalid uid or unknown user")
    });
    "-force-gid" => Value("{} missing gid or group", |call, value| {
        call.gid = group_id(value.given.as_bytes());
        known(call.gid, value, "-force-gid invalid gid or unknown group")
    });
    "-all-root" | "-root-owned" => Set(|call| (call.uid, call.gid) = (Some(0), Some(0)));
    "-exports" => Set(|call| call.exports = true);
    "-no-sparse" => Set(|call| call.sparse = false);
    "-xattrs" => Set(|call| call.xattrs = true);
    "-no-xattrs" => Set(|call| {
        call.xattrs = false;
        call.xattrs_add.clear();
    });
    "-xattrs-include" => Value(REGEX, |call, value| {
        call.xattrs = true;
        call.xattrs_include = Some(expression(value)?);
        Ok(())
    });
    "-xattrs-exclude" => Value(REGEX, |call, value| {
        call.xattrs = true;
        call.xattrs_exclude = Some(expression(value)?);
        Ok(())
    });
    "-xattrs-add" => Value("{} missing xattr argument", |call, value| {
        call.xattrs = true;
        match parse_xattr(value.given.as_bytes()) {
            Ok(xattr) => call.xattrs_add.push(xattr),
            Err(error) => return value.refuse(format!("-xattrs-add {error}")),
        }
        Ok(())
    });
    "-noI" | "-noInodeCompression" => Set(|call| (call.compress.inodes, call.compress.ids) = (false, false));
    "-noId" | "-noIdTableCompression" => Set(|call| call.compress.ids = false);
    "-noD" | "-noDataCompression" => Set(|call| call.compress.data = false);
    "-noF" | "-noFragmentCompression" => Set(|call| call.compress.fragments = false);
    "-noX" | "-noXattrCompression" => Set(|call| call.compress.xattrs = false);
    "-no-compression" => Set(|call| {
        call.compress = Compress {
            inodes: false,
            data: false,
            fragments: false,
            ids: false,
            xattrs: false,
        };
    });
    "-no-tailends" => Set(|call| call.fragments = Fragments::Yes);
    "-no-fragments" => Set(|call| call.fragments = Fragments::No);
    "-no-duplicates" => Set(|call| call.duplicates = false);
    "-no-hardlinks" => Set(|call| call.hard_links = false);
    "-nopad" => Set(|call| call.pad = false);
    "-offset" | "-o" => Value("{} missing or invalid offset size", |call, value| {
        call.offset = value.size()?;
        Ok(())
    });
    "-ef" => Value(FILE, |call, value| value.push(&mut call.exclude_files));
    "-regex" => Set(|call| call.regex = true);
    "-exit-on-error" => Set(|call| call.exit_on_error = true);
    "-quiet" => Set(|call| call.quiet = true);
    "-info" => Set(|call| call.info = true);
    "-info-file" => Value(FILE, |call, value| value.set(&mut call.info_file));
    "-progress" => Set(|call| call.progress = true);
    "-no-progress" | "-percentage" => Set(|call| call.progress = false);
    "-processors" => Value("{} missing or invalid processor number", |call, value| {
        call.processors = Some(value.number()?);
        match call.processors {
            Some(0) => value.refuse("-processors should be 1 or larger"),
            _ => Ok(()),
        }
    });
    "-mem" => Value("{} missing or invalid mem size", |call, value| {
        let bytes = value.size()?;
        if bytes < 16 << 20 {
            return value.refuse("-mem should be 16 Mbytes or larger");
        }
        call.memory = Some(bytes);
        Ok(())
    });
    "-mem-percent" => Value("{} missing or invalid percentage: it should be 1 - 75%", |_, value| percentage(value, 1..=99));
    "-overcommit" => Value("{} missing or invalid percentage", |_, value| value.number::<u32>().map(drop));
    "-small-readers" | "-block-readers" => Value("{} missing or invalid number", |_, value| value.number::<u32>().map(drop));
    "-single-reader" | "-numeric-owner" => Nothing;
    "-throttle" => Value("{} missing or invalid value", |_, value| percentage(value, 0..=99));
    "-limit" => Value("{} missing or invalid value", |_, value| percentage(value, 1..=100));
    "-reproducible" | "-not-reproducible" => Nothing;
};

/// Actions that change where and how contents are stored, but not the tree. They have no effect.
const LAYOUT_ACTIONS: &[&str] = &[
    "fragment",
    "fragments",
    "no-fragments",
    "always-use-fragments",
    "dont-always-use-fragments",
    "tailend",
    "no-tailend",
    "compressed",
    "uncompressed",
    "align",
    "noop",
];

/// The options of `mksquashfs` only.
pub const MKSQUASHFS: &[Opt<MakeCall>] = options! {
    "-tar" => Set(|call| {
        (call.tar, call.exports) = (true, false);
        call.fragments = Fragments::Always;
    });
    "-no-exports" => Set(|call| call.exports = false);
    "-tailends" | "-always-use-fragments" => Set(|call| call.fragments = Fragments::Always);
    "-keep-as-directory" => Set(|call| call.keep_directory = true);
    "-action" => Value("{} missing action", |_, value| {
        let text = value.text();
        let name = text.trim_start().split(['@', '(', ' ']).next().unwrap_or_default();
        if LAYOUT_ACTIONS.contains(&name) {
            return Ok(());
        }
        let known = LAYOUT_ACTIONS.join(", ");
        value.refuse(format!("-action {name}: only these are known: {known}"))
    });
    "-sort" => Value(FILE, |call, value| value.push(&mut call.sort));
    "-e" => Word(|call, _, words| {
        if words.len() == 0 {
            return Err(Refusal::Told("mksquashfs: -e missing arguments".to_string()));
        }
        call.excludes.extend(words.map(|word| word.as_bytes().to_vec()));
        Ok(())
    });
    "-wildcards" => Set(|call| call.wildcards = true);
    "-one-file-system" => Set(|call| call.other_filesystems = OtherFilesystems::Empty);
    "-one-file-system-x" => Set(|call| call.other_filesystems = OtherFilesystems::LeftOut);
    "-max-depth" => Value("{} missing or invalid value", |call, value| value.set_number(&mut call.max_depth));
    "-noappend" => Set(|call| call.replace = true);
    "-no-recovery" => Nothing;
    // forerun does not append to images, so there is nothing to recover.
    "-recovery-path" => Value("{} missing pathname", |_, _| Ok(()));
};

/// The options of `sqfstar` only.
pub const SQFSTAR: &[Opt<MakeCall>] = options! {
    "-force" => Set(|call| call.replace = true);
};

/// Parses the arguments after the program's name.
pub fn parse(tool: Tool, program: &str, words: &[OsString]) -> Parsed<MakeCall> {
    let is_tar = tool == Tool::Sqfstar;
    let mut call = MakeCall {
        tar: is_tar,
        exports: !is_tar,
        fragments: if is_tar {
            Fragments::Always
        } else {
            Fragments::Yes
        },
        ..MakeCall::default()
    };
    let options = Options {
        program,
        grammar: Grammar::Words("invalid option {}\n"),
        tables: match tool {
            Tool::Mksquashfs => &[TABLE, MKSQUASHFS],
            Tool::Sqfstar => &[TABLE, SQFSTAR],
        },
    };
    let no_image = || Refusal::Usage(String::new());
    if let [only] = words
        && ["-version", "-help", "-h"].iter().any(|name| only == name)
    {
        options.parse(words, &mut call)?;
    }
    match tool {
        Tool::Mksquashfs => {
            let is_option = |word: &OsString| matches!(word.as_bytes(), [b'-', _, ..]);
            let end = words.iter().position(is_option).unwrap_or(words.len());
            let (names, words) = words.split_at(end);
            let [sources @ .., output] = names else {
                return Err(no_image());
            };
            if sources.is_empty() {
                return Err(no_image());
            }
            (call.sources, call.output) = (sources.to_vec(), output.clone());
            if let Some(word) = options.parse(words, &mut call)?.first() {
                return Err(options.unknown(&word.to_string_lossy()));
            }
        }
        Tool::Sqfstar => {
            let mut operands = options.parse(words, &mut call)?.into_iter();
            call.output = operands.next().ok_or_else(no_image)?;
            call.excludes.extend(operands.map(OsStringExt::into_vec));
        }
    }
    Ok(call)
}

fn block_size(value: &options::Value<'_>) -> Parsed<u32> {
    let text = value.text();
    let short = match text.strip_suffix("bytes").or(text.strip_suffix('B')) {
        Some(short) if short.ends_with(['k', 'K', 'm', 'M']) => short,
        _ => text.as_str(),
    };
    let Some(bytes) = options::parse_size(OsStr::new(short)) else {
        return value.refuse("-b invalid block size");
    };
    let fits = u32::try_from(bytes).ok();
    match fits.filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 20).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => value.refuse("-b block size not power of two or not between 4096 and 1Mbyte"),
    }
}

fn mode(value: &options::Value<'_>) -> Parsed<ModeChange> {
    ModeChange::parse(&value.text()).ok_or_else(|| value.invalid())
}

/// Parses seconds since 1970, a date, `now`, or `inode` for the latest time of the entries.
fn time(value: &options::Value<'_>) -> Parsed<MakeTime> {
    let text = value.text();
    let seconds = match text.as_str() {
        "inode" => return Ok(MakeTime::Latest),
        "now" => Some(changes::now()),
        text => parse_time(text).and_then(|time| u32::try_from(time.seconds).ok()),
    };
    seconds
        .map(MakeTime::Seconds)
        .ok_or_else(|| value.invalid())
}

fn known(id: Option<u32>, value: &options::Value<'_>, message: &str) -> Parsed {
    id.map_or_else(|| value.refuse(message), |_| Ok(()))
}

fn percentage(value: &options::Value<'_>, range: RangeInclusive<u32>) -> Parsed {
    if range.contains(&value.number()?) {
        return Ok(());
    }
    let (name, least, most) = (value.name, range.start(), range.end());
    value.refuse(format!("{name} value should be between {least} and {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: Tool, line: &[&str]) -> Parsed<MakeCall> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        parse(tool, "x", &words)
    }

    #[test]
    fn sources_come_before_options_and_excludes_last() {
        let line = [
            "a", "b", "o", "-b", "64k", "-Xhc", "-comp", "lz4", "-e", "x", "-y",
        ];
        let expected = MakeCall {
            sources: vec!["a".into(), "b".into()],
            output: "o".into(),
            block_size: 65536,
            compressor: Some("lz4".into()),
            compressor_words: vec![("Xhc".into(), None)],
            excludes: vec![b"x".to_vec(), b"-y".to_vec()],
            ..MakeCall::default()
        };
        assert_eq!(call(Tool::Mksquashfs, &line).unwrap(), expected);
        let expected = MakeCall {
            output: "o".into(),
            tar: true,
            exports: false,
            replace: true,
            fragments: Fragments::Always,
            compressor_words: vec![("Xcompression-level".into(), Some("3".into()))],
            excludes: vec![b"x".to_vec(), b"-b".to_vec()],
            ..MakeCall::default()
        };
        let line = ["-force", "-Xcompression-level", "3", "o", "x", "-b"];
        assert_eq!(call(Tool::Sqfstar, &line).unwrap(), expected);
    }

    #[test]
    fn what_is_no_option_is_refused() {
        let told = |text: &str| Refusal::Told(format!("x: {text}"));
        let unknown = |word: &str| Refusal::Usage(format!("x: invalid option {word}\n"));
        let no_image = || Refusal::Usage(String::new());
        for (tool, line, expected) in [
            (
                Tool::Mksquashfs,
                &["a", "o", "-pf"][..],
                told("-pf missing filename"),
            ),
            (Tool::Mksquashfs, &["a", "o", "-force"], unknown("-force")),
            (Tool::Mksquashfs, &["a", "o", "-quiet", "b"], unknown("b")),
            (Tool::Mksquashfs, &["a"], no_image()),
            (Tool::Mksquashfs, &["-quiet", "a", "o"], no_image()),
            (
                Tool::Mksquashfs,
                &["a", "o", "-mem", "18446744073709551615G"],
                told("-mem missing or invalid mem size"),
            ),
            (Tool::Sqfstar, &["-wildcards", "x"], unknown("-wildcards")),
            (Tool::Sqfstar, &["-quiet"], no_image()),
            (Tool::Sqfstar, &["-h"], Refusal::Help),
        ] {
            assert_eq!(call(tool, line).unwrap_err(), expected, "{line:?}");
        }
    }
}
