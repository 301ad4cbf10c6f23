use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use forerun::build::parse_time;
use forerun::vfs::Timestamp;

use super::listing::ListForm;
use crate::extended::expression;
use crate::options::Effect::{Help, Nothing, Set, Value, Word};
use crate::options::{Grammar, Opt, Options, Parsed, Refusal, options};
use crate::path_list;

const QUEUE: &str = "-data-queue or -frag-queue missing or invalid queue size";

pub const TABLE: &[Opt<UnsquashCall>] = options! {
    "-v" | "-version" => Set(|call| call.version = true);
    "-h" | "-help" => Help;
    "-cat" => Set(|call| call.work = UnsquashWork::Cat);
    "-d" | "-dest" => Value("-dest missing filename", |call, value| value.set(&mut call.dest));
    "-max" | "-max-depth" => Value("-max-depth missing or invalid levels", |call, value| {
        value.set_number(&mut call.max_depth)
    });
    "-excludes" => Set(|call| call.are_excludes = true);
    "-ex" | "-exclude-list" => Word(|call, _, words| {
        for word in words.by_ref() {
            if word == ";" {
                return Ok(());
            }
            call.excludes.push(word.as_bytes().to_vec());
        }
        let message = "unsquashfs: -exclude-list missing filenames or no ';' terminator";
        Err(Refusal::Told(message.to_string()))
    });
    "-L" | "-follow" | "-follow-symlinks" => Set(|call| call.follow = true);
    "-missing" | "-missing-symlinks" => Set(|call| call.missing = true);
    "-q" | "-quiet" => Set(|call| call.quiet = true);
    "-n" | "-no-progress" => Set(|call| call.no_progress = true);
    "-no" | "-no-xattrs" => Set(|call| call.no_xattrs = true);
    "-x" | "-xattrs" => Set(|call| call.no_xattrs = false);
    "-u" | "-user-xattrs" => Set(|call| (call.no_xattrs, call.user_xattrs) = (false, true));
    "-xattrs-include" => Value("{} missing regex pattern", |call, value| {
        (call.no_xattrs, call.xattrs_include) = (false, Some(expression(value)?));
        Ok(())
    });
    "-xattrs-exclude" => Value("{} missing regex pattern", |call, value| {
        (call.no_xattrs, call.xattrs_exclude) = (false, Some(expression(value)?));
        Ok(())
    });
    "-all" | "-all-time" => Value("{} missing time value", |call, value| {
        call.all_time = parse_time(&value.text()).map(|time| Timestamp { nanoseconds: 0, ..time });
        match call.all_time {
            Some(_) => Ok(()),
            None => value.refuse(format!("{} invalid time value", value.name)),
        }
    });
    "-p" | "-processors" => Value("-processors missing or invalid processor number", |call, value| {
        value.set_number(&mut call.processors)?;
        match call.processors {
            Some(0) => value.refuse("-processors should be 1 or larger"),
            _ => Ok(()),
        }
    });
    "-i" | "-info" => Set(|call| call.info = Some(ListForm::Short));
    "-li" | "-linfo" => Set(|call| call.info = Some(ListForm::Long));
    "-l" | "-ls" => Set(|call| call.work = list(ListForm::Short));
    "-ll" | "-lls" => Set(|call| call.work = list(ListForm::Long));
    "-lln" | "-llnumeric" => Set(|call| call.work = list(ListForm::Numeric));
    "-lc" => Set(|call| call.work = UnsquashWork::List { form: ListForm::Short, concise: true });
    "-llc" => Set(|call| call.work = UnsquashWork::List { form: ListForm::Long, concise: true });
    "-o" | "-offset" => Value("-o missing or invalid offset size", |call, value| {
        call.offset = value.size()?;
        Ok(())
    });
    "-f" | "-force" => Set(|call| call.force = true);
    "-ig" | "-ignore-errors" => Nothing;
    "-st" | "-strict-errors" => Set(|call| call.strict = true);
    "-no-exit" | "-no-exit-code" => Set(|call| call.no_exit_code = true);
    "-s" | "-stat" => Set(|call| call.work = UnsquashWork::Stat);
    "-UTC" => Set(|call| call.utc = true);
    "-mkfs-time" | "-fstime" => Set(|call| call.work = UnsquashWork::MkfsTime);
    "-e" | "-ef" | "-extract-file" => Value("-extract-file missing filename", |call, value| {
        call.paths.extend(path_list(value.given, "extract").map_err(Refusal::Told)?);
        Ok(())
    });
    "-exc" | "-excf" | "-exclude-file" => Value("-exclude-file missing filename", |call, value| {
        call.excludes.extend(path_list(value.given, "exclude").map_err(Refusal::Told)?);
        Ok(())
    });
    // Sizes in mebibytes.
    "-da" | "-data-queue" | "-fr" | "-frag-queue" => Value(QUEUE, |_, value| value.number::<u32>().map(drop));
    "-mem" => Value("{} missing or invalid mem size", |_, value| value.size().map(drop));
    "-mem-percent" | "-max-files" => Value("{} missing or invalid number", |_, value| value.number::<u32>().map(drop));
    "-percentage" => Set(|call| call.no_progress = true);
    "-no-wild" | "-no-wildcards" => Set(|call| call.no_wildcards = true);
    "-r" | "-regex" => Set(|call| call.regex = true);
};

const fn list(form: ListForm) -> UnsquashWork {
    UnsquashWork::List {
        form,
        concise: false,
    }
}

/// The requested work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsquashWork {
    #[default]
    Extract,
    /// Lists; with `concise`, without non-empty directories.
    List {
        form: ListForm,
        concise: bool,
    },
    Cat,
    Stat,
    MkfsTime,
}

/// A valid command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnsquashCall {
    pub work: UnsquashWork,
    pub version: bool,
    pub image: Option<OsString>,
    /// Paths in the image, or patterns.
    pub paths: Vec<Vec<u8>>,
    pub excludes: Vec<Vec<u8>>,
    /// The paths after the image are excludes.
    are_excludes: bool,
    pub dest: Option<OsString>,
    pub max_depth: Option<usize>,
    pub follow: bool,
    pub missing: bool,
    pub quiet: bool,
    pub no_progress: bool,
    pub no_xattrs: bool,
    pub user_xattrs: bool,
    pub xattrs_include: Option<String>,
    pub xattrs_exclude: Option<String>,
    /// The time of all entries.
    pub all_time: Option<Timestamp>,
    pub processors: Option<u16>,
    /// Lists the extracted entries.
    pub info: Option<ListForm>,
    pub offset: u64,
    pub force: bool,
    pub strict: bool,
    pub no_exit_code: bool,
    pub utc: bool,
    pub no_wildcards: bool,
    pub regex: bool,
}

pub fn parse(program: &str, words: &[OsString]) -> Parsed<UnsquashCall> {
    let mut call = UnsquashCall::default();
    let options = Options {
        program,
        grammar: Grammar::Words("unknown option {}"),
        tables: &[TABLE],
    };
    let mut operands = options.parse(words, &mut call)?.into_iter();
    call.image = operands.next();
    let paths = operands.map(OsStringExt::into_vec);
    if call.are_excludes {
        call.excludes.extend(paths);
    } else {
        call.paths.extend(paths);
    }
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &[&str]) -> Parsed<UnsquashCall> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        parse("unsquashfs", &words)
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
            let expected = Refusal::Told(format!("unsquashfs: {expected}"));
            assert_eq!(call(line).unwrap_err(), expected, "{line:?}");
        }
        assert_eq!(
            call(&["-pf", "x"]).unwrap_err(),
            Refusal::Usage("unsquashfs: unknown option -pf".into())
        );
        assert_eq!(call(&["-help"]).unwrap_err(), Refusal::Help);
    }
}
