//! Option parsing. Each program has a table of its options and of their effects on the parsed call.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use crate::complain;

/// The remaining arguments of a command line.
pub type Words<'w> = std::slice::Iter<'w, OsString>;

pub type Parsed<T = ()> = Result<T, Refusal>;

/// The reason why a command line is not executed.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The user asked for the usage.
    Help,
    /// The user asked for the version.
    Version,
    /// An error message, which may be empty, to be printed with the usage.
    Usage(String),
    Told(String),
}

/// The texts with which a program responds to a refused command line.
pub struct Manual<'m> {
    /// The program's name, and the version whose options are supported.
    pub version: &'m str,
    pub usage: &'m str,
    /// The exit status of a usage error.
    pub mistake: u8,
}

impl Manual<'_> {
    pub fn answer(&self, refusal: Refusal) -> u8 {
        match refusal {
            Refusal::Help => return print(self.usage),
            Refusal::Version => return self.print_version(),
            Refusal::Usage(message) if message.is_empty() => {}
            Refusal::Usage(message) => complain(&message),
            Refusal::Told(message) => {
                complain(&message);
                return self.mistake;
            }
        }
        // Without standard error, nothing can be reported.
        let _ = io::stderr().write_all(self.usage.as_bytes());
        self.mistake
    }

    pub fn print_version(&self) -> u8 {
        let forerun = env!("CARGO_PKG_VERSION");
        print(&format!("{} (forerun {forerun})\n", self.version))
    }
}

pub fn print(text: &str) -> u8 {
    // Without standard output, nothing can be printed.
    let _ = io::stdout().write_all(text.as_bytes());
    0
}

pub struct Opt<C: 'static> {
    /// Names with their dashes. A name that ends with `*` matches all arguments with that prefix;
    /// the rest is the value.
    pub names: &'static [&'static str],
    pub effect: Effect<C>,
}

pub enum Effect<C> {
    Nothing,
    Help,
    Version,
    Set(fn(&mut C)),
    /// Takes a value. The text is the message for a missing or invalid value, with `{}` for the
    /// name.
    Value(&'static str, fn(&mut C, &Value<'_>) -> Parsed),
    /// Takes an optional value, after `=` or, for a short option, in the same argument.
    Perhaps(fn(&mut C, Option<&OsStr>)),
    /// Gets the argument itself, and consumes any number of the following ones.
    Word(fn(&mut C, &str, &mut Words<'_>) -> Parsed),
}

macro_rules! options {
    ($($($name:literal)|+ => $effect:expr;)*) => {
        &[$($crate::options::Opt { names: &[$($name),+], effect: $effect }),*]
    };
}
pub(crate) use options;

pub struct Value<'v> {
    /// The name of the option; in a list, the whole item.
    pub name: &'v str,
    pub given: &'v OsStr,
    complaint: &'v str,
    /// Converts a message to a refusal.
    refusal: &'v dyn Fn(String) -> Refusal,
}

impl Value<'_> {
    pub fn text(&self) -> String {
        self.given.to_string_lossy().into_owned()
    }

    pub fn set<T: From<OsString>>(&self, place: &mut Option<T>) -> Parsed {
        *place = Some(self.given.to_os_string().into());
        Ok(())
    }

    pub fn push<T: From<OsString>>(&self, place: &mut Vec<T>) -> Parsed {
        place.push(self.given.to_os_string().into());
        Ok(())
    }

    pub fn number<N: FromStr>(&self) -> Parsed<N> {
        parse_number(self.given).ok_or_else(|| self.invalid())
    }

    pub fn set_number<N: FromStr>(&self, place: &mut Option<N>) -> Parsed {
        *place = Some(self.number()?);
        Ok(())
    }

    pub fn size(&self) -> Parsed<u64> {
        parse_size(self.given).ok_or_else(|| self.invalid())
    }

    /// Returns the refusal of a missing or invalid value.
    pub fn invalid(&self) -> Refusal {
        (self.refusal)(self.complaint.replace("{}", self.name))
    }

    /// Refuses the value with a message.
    pub fn refuse<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err((self.refusal)(message.into()))
    }
}

pub fn parse_number<N: FromStr>(word: &OsStr) -> Option<N> {
    let text = word.to_str().filter(|text| !text.starts_with('+'))?;
    text.parse().ok()
}

/// Parses a number of bytes with an optional suffix K, M or G.
pub fn parse_size(word: &OsStr) -> Option<u64> {
    let (digits, shift) = match word.as_bytes() {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let count: u64 = parse_number(OsStr::from_bytes(digits))?;
    count.checked_mul(1 << shift)
}

/// Refuses with this message and no usage.
pub fn told<T>(message: impl Into<String>) -> Parsed<T> {
    Err(Refusal::Told(message.into()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// Like getopt_long(3): grouped short options, long options with the value attached or
    /// separate, operands anywhere.
    Getopt,
    /// Like squashfs-tools: one option per argument. The first argument without a dash and all
    /// after it are operands. The text is the message for an unknown option.
    Words(&'static str),
    /// Like libfuse: one option per argument, operands anywhere.
    Fuse,
}

pub struct Options<'o, C: 'static> {
    /// The program's name in messages.
    pub program: &'o str,
    pub grammar: Grammar,
    pub tables: &'o [&'static [Opt<C>]],
}

/// Applies the arguments after the program's name to the call, like getopt_long(3). Returns the
/// operands.
pub fn getopt<C>(
    program: &str,
    table: &'static [Opt<C>],
    words: &[OsString],
    call: &mut C,
) -> Parsed<Vec<OsString>> {
    let options = Options {
        program,
        grammar: Grammar::Getopt,
        tables: &[table],
    };
    options.parse(words, call)
}

impl<C> Options<'_, C> {
    /// Applies the arguments after the program's name to the call. Returns the operands.
    pub fn parse(&self, words: &[OsString], call: &mut C) -> Parsed<Vec<OsString>> {
        let mut operands = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (self.grammar, word.as_bytes()) {
                (Grammar::Getopt | Grammar::Fuse, b"--") => {
                    operands.extend(words.by_ref().cloned());
                }
                (Grammar::Getopt, [b'-', b'-', long @ ..]) => self.long(long, &mut words, call)?,
                (Grammar::Getopt, [b'-', short @ ..]) if !short.is_empty() => {
                    self.short(short, &mut words, call)?;
                }
                (Grammar::Words(_), [b'-', ..]) | (Grammar::Fuse, [b'-', _, ..]) => {
                    self.whole(word, &mut words, call)?;
                }
                (Grammar::Words(_), _) => {
                    operands.push(word.clone());
                    operands.extend(words.by_ref().cloned());
                }
                _ => operands.push(word.clone()),
            }
        }
        Ok(operands)
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &'static Opt<C>)> {
        let all = self.tables.iter().copied().flatten();
        all.flat_map(|option| option.names.iter().map(move |name| (*name, option)))
    }

    fn refusal(&self, message: String) -> Refusal {
        match self.grammar {
            Grammar::Words(_) => Refusal::Told(format!("{}: {message}", self.program)),
            Grammar::Getopt | Grammar::Fuse => Refusal::Usage(message),
        }
    }

    fn apply(
        &self,
        option: &Opt<C>,
        name: &str,
        in_word: Option<&OsStr>,
        words: &mut Words<'_>,
        call: &mut C,
    ) -> Parsed {
        apply(option, name, in_word, words, call, &|message| {
            self.refusal(message)
        })
    }

    fn whole(&self, word: &OsStr, words: &mut Words<'_>, call: &mut C) -> Parsed {
        let text = word.to_string_lossy();
        if let Some((_, option)) = self.all().find(|(name, _)| *name == text) {
            return self.apply(option, &text, None, words, call);
        }
        for (name, option) in self.all() {
            let start = name.strip_suffix('*').map(str::as_bytes);
            if let Some(rest) = start.and_then(|start| word.as_bytes().strip_prefix(start)) {
                return self.apply(option, &text, Some(OsStr::from_bytes(rest)), words, call);
            }
        }
        Err(self.unknown(&text))
    }

    /// Returns the refusal of an unknown option.
    pub fn unknown(&self, word: &str) -> Refusal {
        match self.grammar {
            Grammar::Words(unknown) => {
                let message = unknown.replace("{}", word);
                Refusal::Usage(format!("{}: {message}", self.program))
            }
            _ => Refusal::Told(format!("fuse: unknown option(s): `{word}'")),
        }
    }

    fn long(&self, word: &[u8], words: &mut Words<'_>, call: &mut C) -> Parsed {
        let text = String::from_utf8_lossy(word);
        let name = word.split(|byte| *byte == b'=').next().unwrap_or(word);
        let value = word.get(name.len() + 1..).map(OsStr::from_bytes);
        let long = |name: &'static str| name.strip_prefix("--").unwrap_or_default();
        let begins = |entry: &(&'static str, _)| long(entry.0).as_bytes().starts_with(name);
        let mut found = self.all().filter(begins);
        let exact = self.all().find(|entry| long(entry.0).as_bytes() == name);
        let (full, option) = match (exact, found.next(), found.next()) {
            (Some(exact), ..) if !name.is_empty() => exact,
            (None, Some(only), None) if !name.is_empty() => only,
            (None, Some(_), Some(_)) => {
                let shown = String::from_utf8_lossy(name);
                return self.mistake(&format!("option '--{shown}' is ambiguous"));
            }
            _ => return self.mistake(&format!("unrecognized option '--{text}'")),
        };
        match (&option.effect, value) {
            (Effect::Value(..), None) if words.len() == 0 => {
                self.mistake(&format!("option '{full}' requires an argument"))
            }
            (Effect::Value(..) | Effect::Perhaps(_), _) | (_, None) => {
                self.apply(option, full, value, words, call)
            }
            (_, Some(_)) => self.mistake(&format!("option '{full}' doesn't allow an argument")),
        }
    }

    fn short(&self, group: &[u8], words: &mut Words<'_>, call: &mut C) -> Parsed {
        let mut rest = group;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            let letter = char::from(*byte);
            let is_it = |(name, _): &(&'static str, _)| {
                name.strip_prefix('-')
                    .is_some_and(|name| name.chars().eq([letter]))
            };
            let Some((name, option)) = self.all().find(is_it) else {
                return self.mistake(&format!("invalid option -- '{letter}'"));
            };
            let mut in_word = None;
            if let Effect::Value(..) | Effect::Perhaps(_) = option.effect {
                in_word = (!rest.is_empty()).then_some(OsStr::from_bytes(rest));
                rest = &[];
            }
            if let (Effect::Value(..), None, 0) = (&option.effect, in_word, words.len()) {
                return self.mistake(&format!("option requires an argument -- '{letter}'"));
            }
            self.apply(option, name, in_word, words, call)?;
        }
        Ok(())
    }

    /// Refuses with a message of getopt.
    fn mistake(&self, message: &str) -> Parsed {
        Err(Refusal::Usage(format!("{}: {message}", self.program)))
    }
}

fn apply<C>(
    option: &Opt<C>,
    name: &str,
    in_word: Option<&OsStr>,
    words: &mut Words<'_>,
    call: &mut C,
    refusal: &dyn Fn(String) -> Refusal,
) -> Parsed {
    match option.effect {
        Effect::Nothing => {}
        Effect::Help => return Err(Refusal::Help),
        Effect::Version => return Err(Refusal::Version),
        Effect::Set(set) => set(call),
        Effect::Value(complaint, set) => {
            let given = in_word.or_else(|| words.next().map(OsString::as_os_str));
            let value = Value {
                name,
                given: given.unwrap_or_default(),
                complaint,
                refusal,
            };
            if given.is_none() {
                return Err(value.invalid());
            }
            set(call, &value)?;
        }
        Effect::Perhaps(set) => set(call, in_word),
        Effect::Word(set) => set(call, name, words)?,
    }
    Ok(())
}

/// Applies a list such as `ro,uid=5` to the call. Names of items with values end with `=`. Passes
/// items that are not in the table to `other`.
pub fn apply_list<C>(
    table: &[Opt<C>],
    list: &str,
    call: &mut C,
    mut other: impl FnMut(&mut C, &str) -> Parsed,
) -> Parsed {
    for word in split_list(list) {
        // Items of fstab for other programs.
        if word.is_empty() || word.starts_with("x-") || word.starts_with("X-") {
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (word.get(..=name.len()), Some(OsStr::new(value))),
            None => (Some(word), None),
        };
        let mut rows = table.iter();
        match rows.find(|row| row.names.iter().any(|known| Some(*known) == name)) {
            Some(row) => apply(row, word, value, &mut [].iter(), call, &Refusal::Usage)?,
            None => other(call, word)?,
        }
    }
    Ok(())
}

/// Splits at commas without a preceding backslash. The backslashes stay.
fn split_list(list: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    list.split(move |char: char| {
        let ends = char == ',' && !escaped;
        escaped = char == '\\' && !escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::Effect::{Nothing, Perhaps, Set, Value};
    use super::*;

    type Seen = Vec<(&'static str, Option<OsString>)>;

    const TABLE: &[Opt<Seen>] = options! {
        "-a" | "--all" => Set(|seen| seen.push(("a", None)));
        "-v" | "--value" => Value("", |seen, value| {
            seen.push(("v", Some(value.given.into())));
            Ok(())
        });
        "-p" => Perhaps(|seen, value| seen.push(("p", value.map(OsStr::to_os_string))));
        "--perhaps" => Perhaps(|seen, value| seen.push(("perhaps", value.map(OsStr::to_os_string))));
        "--alloc" => Nothing;
    };

    fn told(line: &[&str]) -> Parsed<(Seen, Vec<OsString>)> {
        let words: Vec<_> = line.iter().map(OsString::from).collect();
        let options = Options {
            program: "x",
            grammar: Grammar::Getopt,
            tables: &[TABLE],
        };
        let mut seen = Vec::new();
        let operands = options.parse(&words, &mut seen)?;
        Ok((seen, operands))
    }

    #[test]
    fn options_in_all_spellings() {
        let value = |text: &str| Some(OsString::from(text));
        for (line, expected) in [
            (
                &["-a", "x", "-v", "1"][..],
                vec![("a", None), ("v", value("1"))],
            ),
            (&["-av1", "x"], vec![("a", None), ("v", value("1"))]),
            (&["x", "--value=1"], vec![("v", value("1"))]),
            (&["--val", "1", "x"], vec![("v", value("1"))]),
            (&["-p", "x", "-p2"], vec![("p", None), ("p", value("2"))]),
            (
                &["--perhaps", "x", "--perhaps=a=b"],
                vec![("perhaps", None), ("perhaps", value("a=b"))],
            ),
        ] {
            let expected = (expected, vec!["x".into()]);
            assert_eq!(told(line).unwrap(), expected, "{line:?}");
        }
        let (seen, operands) = told(&["--", "-a", "-"]).unwrap();
        assert!(seen.is_empty() && operands == ["-a", "-"]);
    }

    #[test]
    fn mistakes_have_the_words_of_getopt() {
        for (line, expected) in [
            (&["-x"][..], "x: invalid option -- 'x'"),
            (&["--x=1"], "x: unrecognized option '--x=1'"),
            (&["--al"], "x: option '--al' is ambiguous"),
            (&["--all=1"], "x: option '--all' doesn't allow an argument"),
            (&["-v"], "x: option requires an argument -- 'v'"),
            (&["--value"], "x: option '--value' requires an argument"),
        ] {
            let expected = Refusal::Usage(expected.to_string());
            assert_eq!(told(line).unwrap_err(), expected, "{line:?}");
        }
    }
}
