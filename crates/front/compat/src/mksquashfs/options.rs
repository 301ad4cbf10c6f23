//! The command lines of `mksquashfs` and `sqfstar`: options with one dash.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use forerun::build::Fragments;

use crate::ArgWords;

use super::call::{Definition, MakeCall};
use super::option_table::{MakeOpt, Tool, find};
use super::values::{group, mode, number, size, user};

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
pub enum MakeRefusal {
    Help,
    Version,
    /// There is no image on the command line.
    Syntax,
    /// The message, behind the name of the program.
    Mistake(String),
    /// The message alone.
    Told(String),
    /// This option is not known.
    Unknown(String),
}

pub type MakeParsed<T> = Result<T, MakeRefusal>;

/// Creates a refusal with a message.
pub fn mistake<T>(message: impl Into<String>) -> MakeParsed<T> {
    Err(MakeRefusal::Mistake(message.into()))
}

/// Creates a refusal with a message that does not begin with the program's name.
pub fn told<T>(message: impl Into<String>) -> MakeParsed<T> {
    Err(MakeRefusal::Told(message.into()))
}

/// Parses the words after the program's name.
pub fn parse(tool: Tool, words: &[OsString]) -> MakeParsed<MakeCall> {
    let mut call = MakeCall {
        tar: tool == Tool::Sqfstar,
        exports: tool != Tool::Sqfstar,
        fragments: match tool {
            Tool::Mksquashfs => Fragments::Yes,
            Tool::Sqfstar => Fragments::Always,
        },
        ..MakeCall::default()
    };
    let is_option = |word: &OsString| matches!(word.as_bytes(), [b'-', _, ..]);
    match (tool, words) {
        (_, [only]) if only == "-version" => return Err(MakeRefusal::Version),
        (_, [only]) if only == "-help" || only == "-h" => return Err(MakeRefusal::Help),
        (Tool::Mksquashfs, words) => {
            let end = words.iter().position(is_option).unwrap_or(words.len());
            let (names, options) = words.split_at(end);
            let [sources @ .., output] = names else {
                return Err(MakeRefusal::Syntax);
            };
            if sources.is_empty() {
                return Err(MakeRefusal::Syntax);
            }
            (call.sources, call.output) = (sources.to_vec(), output.clone());
            read_options(tool, &mut call, &mut options.iter())?;
        }
        (Tool::Sqfstar, words) => {
            let mut words = words.iter();
            let rest = read_options(tool, &mut call, &mut words)?;
            call.output = rest.ok_or(MakeRefusal::Syntax)?.clone();
            call.excludes
                .extend(words.map(|word| word.as_bytes().to_vec()));
        }
    }
    Ok(call)
}

/// Reads options. Returns the first word that is none, for which only `sqfstar` has a place.
fn read_options<'w>(
    tool: Tool,
    call: &mut MakeCall,
    words: &mut ArgWords<'w>,
) -> MakeParsed<Option<&'w OsString>> {
    while let Some(word) = words.next() {
        let Some(name) = word.as_bytes().strip_prefix(b"-") else {
            return match tool {
                Tool::Sqfstar => Ok(Some(word)),
                Tool::Mksquashfs => Err(MakeRefusal::Unknown(word.to_string_lossy().into())),
            };
        };
        if name.starts_with(b"X") {
            let name = String::from_utf8_lossy(name).into_owned();
            let takes_value = !["Xhc", "Xhelp"].contains(&name.as_str());
            let value = if takes_value { words.next() } else { None };
            call.compressor_words.push((name, value.cloned()));
            continue;
        }
        match find(tool, name) {
            Some(option) => apply(call, option, word, words)?,
            None => return Err(MakeRefusal::Unknown(word.to_string_lossy().into())),
        }
    }
    Ok(None)
}

fn apply(
    call: &mut MakeCall,
    option: MakeOpt,
    word: &OsString,
    words: &mut ArgWords<'_>,
) -> MakeParsed<()> {
    match option {
        MakeOpt::Version => return Err(MakeRefusal::Version),
        MakeOpt::Help => return Err(MakeRefusal::Help),
        MakeOpt::Tar => {
            (call.tar, call.exports) = (true, false);
            call.fragments = Fragments::Always;
        }
        MakeOpt::Exports(exports) => call.exports = exports,
        MakeOpt::NoSparse => call.sparse = false,
        MakeOpt::Xattrs(xattrs) => call.xattrs = xattrs,
        MakeOpt::NoInodes => (call.compress.inodes, call.compress.ids) = (false, false),
        MakeOpt::NoIds => call.compress.ids = false,
        MakeOpt::NoData => call.compress.data = false,
        MakeOpt::NoFragmentData => call.compress.fragments = false,
        MakeOpt::NoXattrData => call.compress.xattrs = false,
        MakeOpt::NoFragments => call.fragments = Fragments::No,
        MakeOpt::Tails(true) => call.fragments = Fragments::Always,
        MakeOpt::Tails(false) => call.fragments = Fragments::Yes,
        MakeOpt::NoDuplicates => call.duplicates = false,
        MakeOpt::NoHardLinks => call.hard_links = false,
        MakeOpt::AllRoot => (call.uid, call.gid) = (Some(0), Some(0)),
        MakeOpt::KeepDirectory => call.keep_directory = true,
        MakeOpt::Wildcards => call.wildcards = true,
        MakeOpt::Regex => call.regex = true,
        MakeOpt::OneFileSystem => call.one_file_system = true,
        MakeOpt::Replace => call.replace = true,
        MakeOpt::ExitOnError => call.exit_on_error = true,
        MakeOpt::Quiet => call.quiet = true,
        MakeOpt::Info => call.info = true,
        MakeOpt::Progress(progress) => call.progress = progress,
        MakeOpt::NoPad => call.pad = false,
        MakeOpt::Nothing => {}
        MakeOpt::Excludes => {
            if words.len() == 0 {
                return mistake("-e missing arguments");
            }
            let excludes = words.map(|word| word.as_bytes().to_vec());
            call.excludes.extend(excludes);
        }
        option => with_value(call, option, &word.to_string_lossy(), words)?,
    }
    Ok(())
}

/// Applies an option that takes the next word; `name` is the option as it was given.
fn with_value(
    call: &mut MakeCall,
    option: MakeOpt,
    name: &str,
    words: &mut ArgWords<'_>,
) -> MakeParsed<()> {
    let message = format!("{name} {}", missing(option));
    let value = words
        .next()
        .ok_or_else(|| MakeRefusal::Mistake(message.clone()))?;
    let time = || number::<u32>(value, &message);
    match option {
        MakeOpt::Comp => call.compressor = Some(value.to_string_lossy().into()),
        MakeOpt::BlockSize => call.block_size = block_size(value)?,
        MakeOpt::MkfsTime => call.mkfs_time = Some(time()?),
        MakeOpt::AllTime => call.all_time = Some(time()?),
        MakeOpt::RootTime => call.root_time = Some(time()?),
        MakeOpt::RootMode => call.root_mode = Some(mode(value, &message)?),
        MakeOpt::RootUid => call.root_uid = Some(number(value, &message)?),
        MakeOpt::RootGid => call.root_gid = Some(number(value, &message)?),
        MakeOpt::ForceUid => call.uid = Some(user(value)?),
        MakeOpt::ForceGid => call.gid = Some(group(value)?),
        MakeOpt::Definition => {
            let line = Definition::Line(value.as_bytes().to_vec());
            call.definitions.push(line);
        }
        MakeOpt::DefinitionFile => call.definitions.push(Definition::File(value.clone())),
        MakeOpt::Sort => call.sort.push(value.clone()),
        MakeOpt::ExcludeFile => call.exclude_files.push(value.clone()),
        MakeOpt::Percentage => {
            let percentage: u32 = number(value, &message)?;
            let (least, most) = if name == "-limit" { (1, 100) } else { (0, 99) };
            if !(least..=most).contains(&percentage) {
                return mistake(format!("{name} value should be between {least} and {most}"));
            }
        }
        MakeOpt::Processors => {
            let processors: u16 = number(value, &message)?;
            if processors == 0 {
                return mistake("-processors should be 1 or larger");
            }
            call.processors = Some(processors);
        }
        MakeOpt::Memory => call.memory = Some(memory(value, &message)?),
        MakeOpt::Offset => call.offset = size(value, &message)?,
        // Of RecoveryPath: nothing is appended to, so there is nothing to recover.
        _ => {}
    }
    Ok(())
}

/// Returns what is told of an option whose value is missing.
const fn missing(option: MakeOpt) -> &'static str {
    match option {
        MakeOpt::Comp => "missing compression type",
        MakeOpt::BlockSize => "missing block size",
        MakeOpt::MkfsTime | MakeOpt::AllTime => "missing or invalid time value",
        MakeOpt::RootTime => "missing or invalid time",
        MakeOpt::RootMode => "missing or invalid mode, octal number <= 07777 expected",
        MakeOpt::RootUid => "missing or invalid uid",
        MakeOpt::RootGid => "missing or invalid gid",
        MakeOpt::ForceUid => "missing uid or user",
        MakeOpt::ForceGid => "missing gid or group",
        MakeOpt::Definition => "missing pseudo file definition",
        MakeOpt::Percentage => "missing or invalid value",
        MakeOpt::Processors => "missing or invalid processor number",
        MakeOpt::Memory => "missing or invalid mem size",
        MakeOpt::Offset => "missing or invalid offset size",
        MakeOpt::RecoveryPath => "missing pathname",
        _ => "missing filename",
    }
}

fn block_size(value: &OsString) -> MakeParsed<u32> {
    let bytes = size(value, "-b invalid block size")?;
    let fits = u32::try_from(bytes).ok();
    let fits = fits.filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 20).contains(bytes));
    match fits {
        Some(bytes) => Ok(bytes),
        None => mistake("-b block size not power of two or not between 4096 and 1Mbyte"),
    }
}

fn memory(value: &OsString, message: &str) -> MakeParsed<u64> {
    let bytes = size(value, message)?;
    match bytes < 16 << 20 {
        true => mistake("-mem should be 16 Mbytes or larger"),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: Tool, line: &[&str]) -> MakeParsed<MakeCall> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        parse(tool, &words)
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
        for (tool, line, expected) in [
            (
                Tool::Mksquashfs,
                &["a", "o", "-pf"][..],
                MakeRefusal::Mistake("-pf missing filename".into()),
            ),
            (
                Tool::Mksquashfs,
                &["a", "o", "-force"],
                MakeRefusal::Unknown("-force".into()),
            ),
            (
                Tool::Mksquashfs,
                &["a", "o", "-quiet", "b"],
                MakeRefusal::Unknown("b".into()),
            ),
            (Tool::Mksquashfs, &["a"], MakeRefusal::Syntax),
            (Tool::Mksquashfs, &["-quiet", "a", "o"], MakeRefusal::Syntax),
            (
                Tool::Mksquashfs,
                &["a", "o", "-mem", "18446744073709551615G"],
                MakeRefusal::Mistake("-mem missing or invalid mem size".into()),
            ),
            (
                Tool::Sqfstar,
                &["-p", "x"],
                MakeRefusal::Unknown("-p".into()),
            ),
            (Tool::Sqfstar, &["-quiet"], MakeRefusal::Syntax),
            (Tool::Sqfstar, &["-h"], MakeRefusal::Help),
        ] {
            assert_eq!(call(tool, line).unwrap_err(), expected, "{line:?}");
        }
    }
}
