//! The command line of `unsquashfs`: options with one dash, before the name of the image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::listing::ListForm;
use crate::{ArgWords, path_list};

/// An option of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opt {
    Version,
    Help,
    Cat,
    Dest,
    MaxDepth,
    Excludes,
    ExcludeList,
    Follow,
    Missing,
    Quiet,
    NoProgress,
    NoXattrs,
    Xattrs,
    UserXattrs,
    Processors,
    Info,
    LongInfo,
    List(ListForm, bool),
    Offset,
    Force,
    IgnoreErrors,
    StrictErrors,
    NoExitCode,
    Stat,
    Utc,
    MkfsTime,
    ExtractFile,
    ExcludeFile,
    /// A size in mebibytes, without effect here.
    Queue,
    NoWildcards,
    Regex,
}

/// The options and their names.
const TABLE: &[(&[&str], Opt)] = &[
    (&["v", "version"], Opt::Version),
    (&["h", "help"], Opt::Help),
    (&["cat"], Opt::Cat),
    (&["d", "dest"], Opt::Dest),
    (&["max", "max-depth"], Opt::MaxDepth),
    (&["excludes"], Opt::Excludes),
    (&["ex", "exclude-list"], Opt::ExcludeList),
    (&["L", "follow", "follow-symlinks"], Opt::Follow),
    (&["missing", "missing-symlinks"], Opt::Missing),
    (&["q", "quiet"], Opt::Quiet),
    (&["n", "no-progress"], Opt::NoProgress),
    (&["no", "no-xattrs"], Opt::NoXattrs),
    (&["x", "xattrs"], Opt::Xattrs),
    (&["u", "user-xattrs"], Opt::UserXattrs),
    (&["p", "processors"], Opt::Processors),
    (&["i", "info"], Opt::Info),
    (&["li", "linfo"], Opt::LongInfo),
    (&["l", "ls"], Opt::List(ListForm::Short, false)),
    (&["ll", "lls"], Opt::List(ListForm::Long, false)),
    (&["lln", "llnumeric"], Opt::List(ListForm::Numeric, false)),
    (&["lc"], Opt::List(ListForm::Short, true)),
    (&["llc"], Opt::List(ListForm::Long, true)),
    (&["o", "offset"], Opt::Offset),
    (&["f", "force"], Opt::Force),
    (&["ig", "ignore-errors"], Opt::IgnoreErrors),
    (&["st", "strict-errors"], Opt::StrictErrors),
    (&["no-exit", "no-exit-code"], Opt::NoExitCode),
    (&["s", "stat"], Opt::Stat),
    (&["UTC"], Opt::Utc),
    (&["mkfs-time", "fstime"], Opt::MkfsTime),
    (&["e", "ef", "extract-file"], Opt::ExtractFile),
    (&["exc", "excf", "exclude-file"], Opt::ExcludeFile),
    (&["da", "data-queue"], Opt::Queue),
    (&["fr", "frag-queue"], Opt::Queue),
    (&["no-wild", "no-wildcards"], Opt::NoWildcards),
    (&["r", "regex"], Opt::Regex),
];

/// The work that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsquashWork {
    #[default]
    Extract,
    /// Lists; without directories that are not empty where `concise`.
    List {
        form: ListForm,
        concise: bool,
    },
    Cat,
    Stat,
    MkfsTime,
}

/// A command line that can be followed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnsquashCall {
    pub work: UnsquashWork,
    pub version: bool,
    pub image: Option<OsString>,
    /// Paths in the image, or patterns.
    pub paths: Vec<Vec<u8>>,
    pub excludes: Vec<Vec<u8>>,
    pub dest: Option<OsString>,
    pub max_depth: Option<usize>,
    pub follow: bool,
    pub missing: bool,
    pub quiet: bool,
    pub no_progress: bool,
    pub no_xattrs: bool,
    pub user_xattrs: bool,
    pub processors: Option<u16>,
    /// Lists what is extracted.
    pub info: Option<ListForm>,
    pub offset: u64,
    pub force: bool,
    pub strict: bool,
    pub no_exit_code: bool,
    pub utc: bool,
    pub no_wildcards: bool,
    pub regex: bool,
}

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
pub enum UnsquashRefusal {
    /// It asks for the usage.
    Help,
    /// The message.
    Mistake(String),
    /// This option is not known.
    Unknown(String),
}

type Parsed<T> = Result<T, UnsquashRefusal>;

/// Parses the words after the program's name.
pub fn parse(words: &[OsString]) -> Parsed<UnsquashCall> {
    let mut call = UnsquashCall::default();
    let mut are_excludes = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(name) = word.as_bytes().strip_prefix(b"-") else {
            call.image = Some(word.clone());
            break;
        };
        let known = TABLE
            .iter()
            .find(|(names, _)| names.iter().any(|known| known.as_bytes() == name));
        match known {
            Some((_, Opt::Excludes)) => are_excludes = true,
            Some((_, option)) => apply(&mut call, *option, &mut words)?,
            None => return Err(UnsquashRefusal::Unknown(word.to_string_lossy().into())),
        }
    }
    let paths = words.map(|word| word.as_bytes().to_vec());
    match are_excludes {
        true => call.excludes.extend(paths),
        false => call.paths.extend(paths),
    }
    Ok(call)
}

fn apply(call: &mut UnsquashCall, option: Opt, words: &mut ArgWords<'_>) -> Parsed<()> {
    match option {
        Opt::Help => return Err(UnsquashRefusal::Help),
        Opt::Version => call.version = true,
        Opt::Cat => call.work = UnsquashWork::Cat,
        Opt::List(form, concise) => call.work = UnsquashWork::List { form, concise },
        Opt::Stat => call.work = UnsquashWork::Stat,
        Opt::MkfsTime => call.work = UnsquashWork::MkfsTime,
        Opt::Info => call.info = Some(ListForm::Short),
        Opt::LongInfo => call.info = Some(ListForm::Long),
        Opt::Follow => call.follow = true,
        Opt::Missing => call.missing = true,
        Opt::Quiet => call.quiet = true,
        Opt::NoProgress => call.no_progress = true,
        Opt::NoXattrs => call.no_xattrs = true,
        Opt::Xattrs => call.no_xattrs = false,
        Opt::UserXattrs => (call.no_xattrs, call.user_xattrs) = (false, true),
        Opt::Force => call.force = true,
        Opt::StrictErrors => call.strict = true,
        Opt::NoExitCode => call.no_exit_code = true,
        Opt::Utc => call.utc = true,
        Opt::NoWildcards => call.no_wildcards = true,
        Opt::Regex => call.regex = true,
        Opt::IgnoreErrors | Opt::Excludes => {}
        option => with_value(call, option, words)?,
    }
    Ok(())
}

/// Applies an option that takes the next word, or more of them.
fn with_value(call: &mut UnsquashCall, option: Opt, words: &mut ArgWords<'_>) -> Parsed<()> {
    let mut value = |missing: &str| {
        let word = words.next();
        word.ok_or_else(|| UnsquashRefusal::Mistake(missing.to_string()))
    };
    match option {
        Opt::Dest => call.dest = Some(value("-dest missing filename")?.clone()),
        Opt::MaxDepth => {
            let message = "-max-depth missing or invalid levels";
            call.max_depth = Some(number(value(message)?, message)?);
        }
        Opt::Processors => {
            let message = "-processors missing or invalid processor number";
            let processors: u16 = number(value(message)?, message)?;
            if processors == 0 {
                let message = "-processors should be 1 or larger";
                return Err(UnsquashRefusal::Mistake(message.to_string()));
            }
            call.processors = Some(processors);
        }
        Opt::Offset => {
            let message = "-o missing or invalid offset size";
            call.offset = size(value(message)?, message)?;
        }
        Opt::Queue => {
            let message = "-data-queue or -frag-queue missing or invalid queue size";
            let _mebibytes: u32 = number(value(message)?, message)?;
        }
        Opt::ExtractFile => {
            let file = value("-extract-file missing filename")?;
            call.paths.extend(lines(file, "extract")?);
        }
        Opt::ExcludeFile => {
            let file = value("-exclude-file missing filename")?;
            call.excludes.extend(lines(file, "exclude")?);
        }
        _ => {
            let message = "-exclude-list missing filenames or no ';' terminator";
            loop {
                match value(message)?.as_bytes() {
                    b";" => break,
                    path => call.excludes.push(path.to_vec()),
                }
            }
        }
    }
    Ok(())
}

fn number<N: std::str::FromStr>(word: &OsStr, message: &str) -> Parsed<N> {
    let text = word.to_str().filter(|text| !text.starts_with('+'));
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| UnsquashRefusal::Mistake(message.to_string()))
}

/// Parses a number of bytes, which K, M or G may follow.
fn size(word: &OsStr, message: &str) -> Parsed<u64> {
    let text = word.to_str().unwrap_or_default();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.get(..text.len() - 1), 10),
        Some(b'm' | b'M') => (text.get(..text.len() - 1), 20),
        Some(b'g' | b'G') => (text.get(..text.len() - 1), 30),
        _ => (Some(text), 0),
    };
    let count: u64 = number(OsStr::new(digits.unwrap_or_default()), message)?;
    let bytes = count.checked_mul(1 << shift);
    bytes.ok_or_else(|| UnsquashRefusal::Mistake(message.to_string()))
}

/// Reads a list of paths.
fn lines(file: &OsStr, kind: &str) -> Parsed<Vec<Vec<u8>>> {
    path_list(file, kind).map_err(UnsquashRefusal::Mistake)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &[&str]) -> Parsed<UnsquashCall> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        parse(&words)
    }

    #[test]
    fn options_end_with_the_image() {
        let parsed = call(&[
            "-n", "-d", "out", "-o", "2k", "-ex", "a", "b", ";", "x.sqsh", "-l",
        ]);
        let expected = UnsquashCall {
            no_progress: true,
            dest: Some("out".into()),
            offset: 2048,
            excludes: vec![b"a".to_vec(), b"b".to_vec()],
            image: Some("x.sqsh".into()),
            paths: vec![b"-l".to_vec()],
            ..UnsquashCall::default()
        };
        assert_eq!(parsed.unwrap(), expected);
        let parsed = call(&["-excludes", "-user-xattrs", "x", "a"]).unwrap();
        assert!(parsed.user_xattrs && parsed.paths.is_empty());
        assert_eq!(parsed.excludes, [b"a"]);
    }

    #[test]
    fn every_name_is_known_once() {
        let names: Vec<_> = TABLE.iter().flat_map(|(names, _)| names.iter()).collect();
        for name in &names {
            assert_eq!(
                names.iter().filter(|other| other == &name).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn the_documentation_names_every_option() {
        let text = include_str!("../../../../../docs/compat.md");
        let (_, text) = text.split_once("## unsquashfs").unwrap();
        for name in TABLE.iter().flat_map(|(names, _)| names.iter()) {
            let is_named = ["`", " "]
                .iter()
                .any(|end| text.contains(&format!("`-{name}{end}")));
            assert!(is_named, "{name}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (line, expected) in [
            (&["-d"][..], "-dest missing filename"),
            (&["-o", "1x", "a"], "-o missing or invalid offset size"),
            (
                &["-o", "18446744073709551615G", "a"],
                "-o missing or invalid offset size",
            ),
            (&["-p", "0", "a"], "-processors should be 1 or larger"),
            (&["-max", "-1", "a"], "-max-depth missing or invalid levels"),
            (
                &["-ex", "a", "b"],
                "-exclude-list missing filenames or no ';' terminator",
            ),
        ] {
            let expected = UnsquashRefusal::Mistake(expected.to_string());
            assert_eq!(call(line).unwrap_err(), expected, "{line:?}");
        }
        assert_eq!(
            call(&["-pf", "x"]).unwrap_err(),
            UnsquashRefusal::Unknown("-pf".into())
        );
        assert_eq!(call(&["-help"]).unwrap_err(), UnsquashRefusal::Help);
    }
}
