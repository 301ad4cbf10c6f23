//! `mkfs.exfat`: makes empty exFAT volumes on devices and in files.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use super::{begin, can_open, print, print_version, tell, usage};
use crate::getopt::{OptNames, Takes, split};
use crate::size;
use crate::{Start, VolumeCall, complain};

const DONE: u8 = 0;
const MISTAKE: u8 = 1;
const TOO_LONG: u8 = 249;
const FAILED: u8 = 255;
/// The longest label, in units of UTF-16.
const LABEL_MAX: usize = 11;

const USAGE: &str = "\
Usage: mkfs.exfat [OPTIONS] DEVICE
\t-L | --volume-label=label          the label
\t-c | --cluster-size=size           bytes of a cluster; K or M may follow
\t-b | --boundary-align=size         the FAT and the clusters begin at multiples of this
\t-f | --full-format                 write zeros, too; only of a file
\t-V | --version, -v | --verbose, -h | --help
";

/// The options.
const TABLE: &[OptNames] = &[
    ('h', "help", Takes::Nothing),
    ('V', "version", Takes::Nothing),
    ('v', "verbose", Takes::Nothing),
    ('L', "volume-label", Takes::Value),
    ('c', "cluster-size", Takes::Value),
    ('b', "boundary-align", Takes::Value),
    ('f', "full-format", Takes::Nothing),
];

/// A command line that can be followed.
#[derive(Debug, Default, PartialEq, Eq)]
struct MkExfat {
    device: OsString,
    label: Option<String>,
    cluster: Option<u64>,
    boundary: Option<u64>,
    full: bool,
}

/// The reason why a command line is not followed.
#[derive(Debug, PartialEq, Eq)]
enum MkExfatRefusal {
    /// Prints the version first, where `true`.
    Usage(bool),
    /// Prints the message before the usage.
    Option(String),
    /// A value that cannot be, with the exit status.
    Value(String, u8),
}

fn parse(name: &str, words: &[OsString]) -> Result<MkExfat, MkExfatRefusal> {
    let split = split(words, TABLE)
        .map_err(|message| MkExfatRefusal::Option(format!("{name}: {message}")))?;
    let mut call = MkExfat::default();
    for given in split.options {
        let (short, ..) = TABLE.get(given.index).copied().unwrap_or(TABLE[0]);
        let value = given
            .value
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let bytes = |what: &str| {
            let bytes = size::parse(&value).ok();
            let bytes = bytes.filter(|bytes| bytes.is_power_of_two());
            let message = || format!("{what}({value}) is not a power of 2)");
            bytes.ok_or_else(|| MkExfatRefusal::Value(message(), FAILED))
        };
        match short {
            'h' => return Err(MkExfatRefusal::Usage(false)),
            'V' => return Err(MkExfatRefusal::Usage(true)),
            'L' if value.encode_utf16().count() > LABEL_MAX => {
                let message = "input string is too long".to_string();
                return Err(MkExfatRefusal::Value(message, TOO_LONG));
            }
            'L' => call.label = Some(value),
            'c' => call.cluster = Some(bytes("cluster size")?),
            'b' => call.boundary = Some(bytes("boundary align")?),
            'f' => call.full = true,
            _ => {}
        }
    }
    let mut operands = split.operands.into_iter();
    match (operands.next(), operands.next()) {
        (Some(device), None) => {
            call.device = device;
            Ok(call)
        }
        _ => Err(MkExfatRefusal::Usage(true)),
    }
}

/// Runs the program. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let call = match parse(&start.name.to_string_lossy(), start.words) {
        Ok(call) => call,
        Err(MkExfatRefusal::Usage(with_version)) => {
            if with_version {
                print_version();
            }
            return usage(USAGE, MISTAKE);
        }
        Err(MkExfatRefusal::Option(message)) => {
            complain(&message);
            return usage(USAGE, MISTAKE);
        }
        Err(MkExfatRefusal::Value(message, status)) => {
            complain(&message);
            print("\nexFAT format fail!\n");
            return status;
        }
    };
    print_version();
    if !can_open(&call.device) {
        print("\nexFAT format fail!\n");
        return FAILED;
    }
    let kind = std::fs::metadata(&call.device).map(|metadata| metadata.file_type());
    if call.full && kind.is_ok_and(|kind| kind.is_block_device()) {
        complain("-f: forerun writes no zeros to a device; blkdiscard -z does that");
        print("\nexFAT format fail!\n");
        return FAILED;
    }
    let shown = call.device.to_string_lossy().into_owned();
    let context = begin();
    let volume = VolumeCall {
        output: PathBuf::from(&call.device),
        label: call.label,
        cluster: call.cluster,
        boundary: call.boundary,
    };
    match (start.commands.make_volume)(&context, &volume) {
        Ok(_) => {
            print(&format!(
                "Creating exFAT filesystem({shown})\n\nexFAT format complete!\n"
            ));
            DONE
        }
        Err(failure) => {
            tell(&failure);
            print("\nexFAT format fail!\n");
            FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        let call = parse(
            "x",
            &words(&["-L", "CARD", "-c64K", "d", "--boundary-align=1M", "-f"]),
        );
        let expected = MkExfat {
            device: "d".into(),
            label: Some("CARD".to_string()),
            cluster: Some(65536),
            boundary: Some(1 << 20),
            full: true,
        };
        assert_eq!(call, Ok(expected));
        for line in [
            &["-c", "5000", "d"][..],
            &["-L", "123456789012", "d"],
            &["-q", "d"],
            &["--pack-bitmap", "d"],
            &["d", "e"],
            &[],
            &["-h"],
        ] {
            assert!(parse("x", &words(line)).is_err(), "{line:?}");
        }
        crate::tests::documented("## mkfs.exfat", TABLE, true);
    }
}
