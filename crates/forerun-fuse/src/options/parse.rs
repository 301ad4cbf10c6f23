//! From `a,b=c` to options.

use super::MountOptions;
use super::value;

/// A word that is not a mount option, or not with that value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No option of that name.
    #[error("unknown mount option {name:?}; there are: {}", known())]
    Unknown {
        /// The word.
        name: String,
    },
    /// The option is nothing without a value.
    #[error("mount option {name} needs a value: {name}={expected}")]
    MissingValue {
        /// The option.
        name: &'static str,
        /// What the value is.
        expected: &'static str,
    },
    /// The option is a word on its own.
    #[error("mount option {name} takes no value, but was given {value:?}")]
    UnexpectedValue {
        /// The option.
        name: &'static str,
        /// What was given.
        value: String,
    },
    /// The value cannot be.
    #[error("mount option {name}={value}: not {expected}")]
    BadValue {
        /// The option.
        name: &'static str,
        /// What was given.
        value: String,
        /// What the value is.
        expected: &'static str,
    },
}

/// What a word does.
enum Action {
    Flag(fn(&mut MountOptions)),
    /// Name of the value for messages, and what sets it; false where it cannot be.
    Value(&'static str, fn(&mut MountOptions, &str) -> bool),
    /// A word of fstab that implies others; with or without a value.
    Implied(fn(&mut MountOptions)),
    /// Means something to others only.
    Ignored,
}

use Action::{Flag, Ignored, Implied, Value};

const SIZE: &str = "a number of bytes such as 4096, 64K, 8M or 1G";
const ID: &str = "a number from 0 to 4294967294";

const MASK: &str = "an octal number up to 777";

const TABLE: &[(&str, Action)] = &[
    ("ro", Flag(|o| (o.rw_asked, o.ro_asked) = (false, true))),
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
        "verity",
        Value("off, on or require", |o, v| {
            value::verity(v).map(|mode| o.verity = mode).is_some()
        }),
    ),
    ("uid", Value(ID, |o, v| set_id(&mut o.uid, v))),
    ("gid", Value(ID, |o, v| set_id(&mut o.gid, v))),
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
    // Names are UTF-8 here as everywhere.
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
    ("keep_last_dots", Flag(|o| o.write.keep_last_dots = true)),
    (
        "time_offset",
        Value("minutes from -1440 to 1440", |o, v| {
            value::minutes(v).map(|n| o.utc_offset = n).is_some()
        }),
    ),
    (
        "tz",
        Value("UTC", |o, v| {
            o.utc_offset = 0;
            v == "UTC"
        }),
    ),
    ("sys_tz", Flag(|o| o.utc_offset = value::local_offset())),
    ("allow_other", Flag(|o| o.allow_other = true)),
    (
        "default_permissions",
        Flag(|o| o.default_permissions = true),
    ),
    ("auto_unmount", Flag(|o| o.auto_unmount = true)),
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
        Value("a name", |o, v| {
            o.subtype = v.to_string();
            is_name(v)
        }),
    ),
    ("suid", Flag(|o| o.suid = true)),
    ("nosuid", Flag(|o| o.suid = false)),
    ("dev", Flag(|o| o.dev = true)),
    ("nodev", Flag(|o| o.dev = false)),
    ("exec", Flag(|o| o.exec = true)),
    ("noexec", Flag(|o| o.exec = false)),
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
    // Nothing is ever written, an access time least of all.
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

/// Prefixes of words that mount(8), systemd and others keep for themselves.
const FOREIGN: &[&str] = &["x-", "X-", "comment=", "helper=", "uhelper="];

/// Unknown words go to `unknown` where that is given.
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
        // mount(8) itself writes `user=NAME` for umount(8) to find.
        (Flag(set), None) | (Implied(set), _) => set(options),
        (Ignored, _) => {}
        (Flag(_), Some(value)) => {
            let value = value.to_string();
            return Err(OptionError::UnexpectedValue { name, value });
        }
        (Value(expected, _), None | Some("")) => {
            return Err(OptionError::MissingValue { name, expected });
        }
        (Value(expected, set), Some(value)) => {
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

/// As mount(8) has it: a line that users may mount is nosuid, nodev and noexec unless a later word
/// says otherwise.
const fn unprivileged(options: &mut MountOptions) {
    options.suid = false;
    options.dev = false;
    options.exec = false;
}

fn set_id(id: &mut Option<u32>, text: &str) -> bool {
    // The highest number stands for "none" in the system's own calls.
    *id = value::number(text).filter(|id| *id != u32::MAX);
    id.is_some()
}

/// What can stand in `/proc/self/mountinfo` and in a C string.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|byte| byte == 0 || byte == b'\n')
}

/// Splits at commas that no backslash precedes.
fn split(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = list.chars();
    while let Some(char) = chars.next() {
        if char == ',' {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            match char {
                '\\' => word.push(chars.next().unwrap_or('\\')),
                char => word.push(char),
            }
        }
    }
    words
}

fn known() -> String {
    let names = TABLE.iter().filter(|(_, action)| match action {
        Flag(_) | Value(..) => true,
        Implied(_) | Ignored => false,
    });
    let names: Vec<_> = names
        .map(|(name, action)| match action {
            Value(..) => format!("{name}="),
            Flag(_) | Implied(_) | Ignored => (*name).to_string(),
        })
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use forerun::WriteOptions;

    use super::*;

    fn parse(list: &str) -> MountOptions {
        MountOptions::parse(list).unwrap_or_else(|error| panic!("{list}: {error}"))
    }

    #[test]
    fn nothing_is_the_default() {
        for list in [
            "",
            "defaults",
            ",,",
            ",,defaults",
            "async",
            "tz=UTC",
            "iocharset=utf8",
        ] {
            assert_eq!(parse(list), MountOptions::default(), "{list}");
        }
        let read_only = MountOptions {
            ro_asked: true,
            ..MountOptions::default()
        };
        assert_eq!(parse("rw,ro,defaults"), read_only);
        assert!(!MountOptions::default().suid && !MountOptions::default().dev);
    }

    #[test]
    fn every_value_is_set() {
        let options = parse(
            "ro,offset=1M,size=2G,device=/a,device=b\\,c,objects=/o,verity=require,uid=1000,gid=100,umask=027,allow_other,default_permissions,\
             auto_unmount,readahead=16M,cache=1G,threads=3,nolargeblocks,fsname=x\\,y\\\\z,\
             subtype=other,suid,dev,noexec",
        );
        let expected = MountOptions {
            offset: 1 << 20,
            size: Some(2 << 30),
            devices: vec!["/a".into(), "b,c".into()],
            objects: Some("/o".into()),
            verity: forerun_vfs::Verity::Require,
            uid: Some(1000),
            gid: Some(100),
            umask: Some(0o27),
            allow_other: true,
            default_permissions: true,
            auto_unmount: true,
            readahead: Some(16 << 20),
            cache: Some(1 << 30),
            threads: Some(3),
            large_blocks: false,
            fsname: Some("x,y\\z".to_string()),
            subtype: "other".to_string(),
            suid: true,
            dev: true,
            exec: false,
            ro_asked: true,
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        let open = options.open_options();
        assert_eq!((open.offset, open.size), (1 << 20, Some(2 << 30)));
        let engine = open.engine;
        assert!(!engine.large_blocks);
        assert_eq!(
            (engine.readahead, engine.cache, engine.threads),
            (16 << 20, 1 << 30, 3)
        );
    }

    #[test]
    fn later_words_win() {
        assert!(parse("nolargeblocks,largeblocks").large_blocks);
        assert!(!parse("suid,nosuid").suid);
        assert!(!parse("suid,dev,user").suid);
        assert!(parse("user,exec").exec);
        assert!(!parse("rw,ro").rw_asked);
        assert!(parse("ro,rw").rw_asked && !parse("ro,rw").ro_asked);
    }

    #[test]
    fn options_of_volumes_that_change() {
        let options = parse(
            "rw,uid=5,umask=077,dmask=022,iocharset=utf8,errors=continue,dirsync,discard,\
             time_offset=-90,keep_last_dots",
        );
        let write = WriteOptions {
            dirsync: true,
            sync: false,
            discard: true,
            continue_on_error: true,
            keep_last_dots: true,
        };
        assert_eq!(options.write, write);
        let open = options.open_options().ownership;
        assert_eq!((open.uid, open.gid, open.utc_offset), (5, 0, -90));
        assert_eq!((open.file_mask, open.directory_mask), (0o77, 0o22));
        assert!(parse("sync").write.sync && parse("sync").write.dirsync);
        assert!(
            !parse("errors=continue,errors=remount-ro")
                .write
                .continue_on_error
        );
        let plain = parse("").open_options().ownership;
        assert_eq!(plain, forerun_vfs::Ownership::default());
    }

    #[test]
    fn words_of_fstab_are_accepted() {
        let line = "rw,noauto,nofail,_netdev,x-systemd.automount,x-systemd.idle-timeout=10,\
                    X-mount.mkdir,comment=a,nosuid,nodev,noatime,relatime,nouser,user=alice";
        let options = parse(line);
        assert!(options.rw_asked && !options.exec);
    }

    #[test]
    fn mistakes_are_named() {
        for (list, expected) in [
            ("largeblock", "unknown mount option \"largeblock\""),
            ("x=1", "unknown mount option \"x=1\""),
            (
                "ro=1",
                "mount option ro takes no value, but was given \"1\"",
            ),
            (
                "offset",
                "mount option offset needs a value: offset=a number",
            ),
            ("uid=", "mount option uid needs a value"),
            ("uid=root", "mount option uid=root: not a number from 0"),
            ("uid=4294967295", "mount option uid=4294967295: not"),
            ("umask=9", "mount option umask=9: not an octal number"),
            (
                "size=1Q",
                "mount option size=1Q: not a number of bytes such as",
            ),
            (
                "threads=0",
                "mount option threads=0: not a number from 1 to 256",
            ),
            ("fsname=a\nb", "mount option fsname=a\nb: not a name"),
            ("iocharset=cp437", "mount option iocharset=cp437: not utf8"),
            (
                "errors=panic",
                "mount option errors=panic: not continue or remount-ro",
            ),
            (
                "time_offset=1441",
                "mount option time_offset=1441: not minutes",
            ),
            ("tz=CET", "mount option tz=CET: not UTC"),
        ] {
            let message = MountOptions::parse(list).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{list}: {message}");
        }
        let mut sloppy = MountOptions::default();
        assert_eq!(
            sloppy.apply_known("foo,ro,bar=1,umask=7").unwrap(),
            ["foo", "bar=1"]
        );
        assert_eq!(sloppy.umask, Some(7));
        assert!(sloppy.apply_known("umask=9").is_err());
        let unknown = MountOptions::parse("foo").unwrap_err().to_string();
        assert!(unknown.contains("offset=, size=") && unknown.contains("nolargeblocks"));
        assert!(!unknown.contains("lazytime"));
    }
}
