//! Parses `a,b=c`.

use forerun::unstable::locks::Locking;
use forerun_vfs::Zone;

use super::{MountOptions, value};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unknown mount option {name:?}; there are: {}", known())]
    Unknown { name: String },
    #[error("mount option {name} needs a value: {expected}")]
    MissingValue {
        name: &'static str,
        expected: &'static str,
    },
    #[error("mount option {name} takes no value, but was given {value:?}")]
    UnexpectedValue { name: &'static str, value: String },
    #[error("mount option {name}={value}: not {expected}")]
    BadValue {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
}

enum Action {
    Flag(fn(&mut MountOptions)),
    /// Description of the value for messages, and a setter that returns false for an invalid value.
    Value(&'static str, fn(&mut MountOptions, &str) -> bool),
    /// Like `Value`, for a value that may be empty.
    Text(&'static str, fn(&mut MountOptions, &str) -> bool),
    /// An fstab word that implies other options, with or without a value.
    Implied(fn(&mut MountOptions)),
    /// Has no effect here.
    Ignored,
}

use Action::{Flag, Ignored, Implied, Text, Value};

const SIZE: &str = "a number of bytes such as 4096, 0x1000, 64K, 8M or 1G";
const ID: &str = "a number from 0 to 4294967294";

const LABEL: &str = "a label of SELinux";
const MASK: &str = "an octal number up to 777";

const TABLE: &[(&str, Action)] = &[
    ("ro", Flag(|o| (o.rw_asked, o.ro_asked) = (false, true))),
    ("salvage", Flag(|o| o.rescue = true)),
    ("rw", Flag(|o| (o.rw_asked, o.ro_asked) = (true, false))),
    (
        "offset",
        Value(SIZE, |o, v| {
            value::parse_size(v).map(|n| o.offset = n).is_some()
        }),
    ),
    (
        "size",
        Value(SIZE, |o, v| {
            value::parse_size(v).map(|n| o.size = Some(n)).is_some()
        }),
    ),
    (
        "device",
        Value("a path", |o, v| {
            o.devices.push(v.into());
            true
        }),
    ),
    (
        "objects",
        Value("a directory", |o, v| {
            o.objects = Some(v.into());
            true
        }),
    ),
    (
        "basedir",
        Value("a directory", |o, v| {
            o.base_dirs.push(v.into());
            true
        }),
    ),
    (
        "verity",
        Value("off, on or require", |o, v| {
            value::verity(v).map(|mode| o.verity = mode).is_some()
        }),
    ),
    (
        "digest",
        Value("64 or 128 hexadecimal digits", |o, v| {
            o.digest = value::digest(v);
            o.digest.is_some()
        }),
    ),
    ("uid", Value(ID, |o, v| set_id(&mut o.uid, v))),
    ("gid", Value(ID, |o, v| set_id(&mut o.gid, v))),
    (
        "unmapped",
        Value("squash or keep", |o, v| {
            o.squash_owners = v == "squash";
            matches!(v, "squash" | "keep")
        }),
    ),
    (
        "umask",
        Value(MASK, |o, v| {
            value::mask(v).map(|bits| o.umask = Some(bits)).is_some()
        }),
    ),
    (
        "fmask",
        Value(MASK, |o, v| {
            value::mask(v)
                .map(|bits| o.file_mask = Some(bits))
                .is_some()
        }),
    ),
    (
        "dmask",
        Value(MASK, |o, v| {
            value::mask(v)
                .map(|bits| o.directory_mask = Some(bits))
                .is_some()
        }),
    ),
    // Names are always UTF-8.
    (
        "iocharset",
        Value("utf8", |_, v| v == "utf8" || v == "utf-8"),
    ),
    ("utf8", Ignored),
    (
        "errors",
        Value("continue or remount-ro", |o, v| {
            o.write.continue_on_error = v == "continue";
            matches!(v, "continue" | "remount-ro")
        }),
    ),
    ("dirsync", Flag(|o| o.write.dirsync = true)),
    (
        "sync",
        Flag(|o| (o.write.dirsync, o.write.sync) = (true, true)),
    ),
    (
        "async",
        Flag(|o| (o.write.dirsync, o.write.sync) = (false, false)),
    ),
    ("discard", Flag(|o| o.write.discard = true)),
    ("nodiscard", Flag(|o| o.write.discard = false)),
    ("nolock", Flag(|o| o.locking = Locking::Ignore)),
    ("break_lock", Flag(|o| o.locking = Locking::Break)),
    (
        "keep_last_dots",
        Flag(|o| o.write.driver_options.push("keep_last_dots")),
    ),
    (
        "time_offset",
        Value("minutes from -1440 to 1440", |o, v| {
            value::minutes(v).map(|n| o.zone = Zone::fixed(n)).is_some()
        }),
    ),
    (
        "tz",
        Value("a zone such as Europe/Berlin", |o, v| {
            Zone::named(v).map(|zone| o.zone = zone).is_some()
        }),
    ),
    (
        "sys_tz",
        Flag(|o| o.zone = Zone::fixed(value::local_offset())),
    ),
    ("allow_other", Flag(|o| o.allow_other = true)),
    (
        "default_permissions",
        Flag(|o| o.default_permissions = true),
    ),
    ("auto_unmount", Flag(|o| o.auto_unmount = true)),
    (
        "restarts",
        Value("a number from 0 to 1000", |o, v| {
            let restarts = value::number(v).filter(|n| *n <= 1000);
            restarts.map(|n| o.restarts = n).is_some()
        }),
    ),
    (
        "readahead",
        Value(SIZE, |o, v| {
            value::parse_size(v)
                .map(|n| o.readahead = Some(n))
                .is_some()
        }),
    ),
    (
        "cache",
        Value(SIZE, |o, v| {
            value::parse_size(v).map(|n| o.cache = Some(n)).is_some()
        }),
    ),
    (
        "threads",
        Value("a number from 1 to 256", |o, v| {
            let threads = value::number(v).filter(|n| (1..=256).contains(n));
            threads.map(|n| o.threads = Some(n)).is_some()
        }),
    ),
    ("largeblocks", Flag(|o| o.large_blocks = true)),
    ("nolargeblocks", Flag(|o| o.large_blocks = false)),
    (
        "fsname",
        Value("a name", |o, v| {
            o.fsname = Some(v.to_string());
            is_name(v)
        }),
    ),
    (
        "subtype",
        Text("a name, or nothing", |o, v| {
            o.subtype = v.to_string();
            v.is_empty() || is_name(v)
        }),
    ),
    ("context", Value(LABEL, |o, v| set_label(o, "context", v))),
    (
        "fscontext",
        Value(LABEL, |o, v| set_label(o, "fscontext", v)),
    ),
    (
        "defcontext",
        Value(LABEL, |o, v| set_label(o, "defcontext", v)),
    ),
    (
        "rootcontext",
        Value(LABEL, |o, v| set_label(o, "rootcontext", v)),
    ),
    ("suid", Flag(|o| o.suid = true)),
    ("nosuid", Flag(|o| o.suid = false)),
    ("dev", Flag(|o| o.dev = true)),
    ("nodev", Flag(|o| o.dev = false)),
    ("exec", Flag(|o| o.exec = true)),
    ("noexec", Flag(|o| o.exec = false)),
    ("remount", Flag(|o| o.remount = true)),
    // mount(8) repeats the kernel's options when it remounts.
    ("user_id", Ignored),
    ("group_id", Ignored),
    ("defaults", Ignored),
    ("auto", Ignored),
    ("noauto", Ignored),
    ("user", Implied(unprivileged)),
    ("users", Implied(unprivileged)),
    ("owner", Implied(unprivileged)),
    ("group", Implied(unprivileged)),
    ("nouser", Ignored),
    ("nousers", Ignored),
    ("noowner", Ignored),
    ("nogroup", Ignored),
    ("nofail", Ignored),
    ("_netdev", Ignored),
    // Access times are never written.
    ("atime", Ignored),
    ("noatime", Ignored),
    ("diratime", Ignored),
    ("nodiratime", Ignored),
    ("relatime", Ignored),
    ("norelatime", Ignored),
    ("strictatime", Ignored),
    ("nostrictatime", Ignored),
    ("lazytime", Ignored),
    ("nolazytime", Ignored),
    ("silent", Ignored),
    ("loud", Ignored),
];

/// Prefixes of words for mount(8), systemd and others.
const FOREIGN: &[&str] = &["x-", "X-", "comment=", "helper=", "uhelper="];

/// Applies a list. Adds unknown words to `unknown` if given; otherwise they are errors.
pub fn apply(
    options: &mut MountOptions,
    list: &str,
    mut unknown: Option<&mut Vec<String>>,
) -> Result<(), OptionError> {
    for word in split(list).iter().filter(|word| !word.is_empty()) {
        match (apply_word(options, word), &mut unknown) {
            (Err(OptionError::Unknown { name }), Some(unknown)) => unknown.push(name),
            (result, _) => result?,
        }
    }
    Ok(())
}

fn apply_word(options: &mut MountOptions, word: &str) -> Result<(), OptionError> {
    if FOREIGN.iter().any(|prefix| word.starts_with(prefix)) {
        return Ok(());
    }
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let Some(&(name, ref action)) = TABLE.iter().find(|(known, _)| *known == name) else {
        let name = word.to_string();
        return Err(OptionError::Unknown { name });
    };
    match (action, value) {
        // mount(8) writes `user=NAME` for umount(8).
        (Flag(set), None) | (Implied(set), _) => set(options),
        (Ignored, _) => {}
        (Flag(_), Some(value)) => {
            let value = value.to_string();
            return Err(OptionError::UnexpectedValue { name, value });
        }
        (Value(expected, _), None | Some("")) | (Text(expected, _), None) => {
            return Err(OptionError::MissingValue { name, expected });
        }
        (Value(expected, set) | Text(expected, set), Some(value)) => {
            if !set(options, value) {
                let value = value.to_string();
                return Err(OptionError::BadValue {
                    name,
                    value,
                    expected,
                });
            }
        }
    }
    Ok(())
}

/// Applies the restrictions of mount(8) for entries that users may mount: nosuid, nodev and noexec,
/// unless later words override them.
const fn unprivileged(options: &mut MountOptions) {
    options.suid = false;
    options.dev = false;
    options.exec = false;
}

/// Sets a label for the kernel. mount(8) puts one with commas in quotes.
fn set_label(options: &mut MountOptions, name: &'static str, value: &str) -> bool {
    let label = value.trim_matches('"');
    options.labels.push((name, label.to_string()));
    !label.is_empty() && !label.contains(['"', '\0'])
}

fn set_id(id: &mut Option<u32>, text: &str) -> bool {
    // The highest ID is invalid in system calls.
    *id = value::number(text).filter(|id| *id != u32::MAX);
    id.is_some()
}

/// Returns whether the text is valid in `/proc/self/mountinfo` and as a C string.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|byte| byte == 0 || byte == b'\n')
}

/// Splits at commas without a backslash in front and outside of labels in quotes.
fn split(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = list.chars();
    let mut in_label = false;
    while let Some(char) = chars.next() {
        if char == ',' && !in_label {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            match char {
                '"' => {
                    in_label = !in_label && word.ends_with("context=");
                    word.push(char);
                }
                '\\' => word.push(chars.next().unwrap_or('\\')),
                char => word.push(char),
            }
        }
    }
    words
}

fn known() -> String {
    let names: Vec<_> = option_words().collect();
    names.join(", ")
}

/// Returns the mount options that have an effect, for help and completions; those with a value end
/// in `=`.
pub fn option_words() -> impl Iterator<Item = String> {
    TABLE.iter().filter_map(|(name, action)| match action {
        Flag(_) => Some((*name).to_string()),
        Value(..) | Text(..) => Some(format!("{name}=")),
        Implied(_) | Ignored => None,
    })
}

#[cfg(test)]
mod tests;
