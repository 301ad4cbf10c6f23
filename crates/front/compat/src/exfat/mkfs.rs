//! `mkfs.exfat`: creates empty exFAT volumes on devices and in files.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use super::{answer, begin, can_open, device_operand, print_version, tell};
use crate::options::Effect::{Help, Nothing, Set, Value, Version};
use crate::options::{self, Opt, Parsed, Refusal, getopt, options, print};
use crate::size;
use crate::{Start, VolumeCall, complain};

const DONE: u8 = 0;
const MISTAKE: u8 = 1;
const TOO_LONG: u8 = 249;
const FAILED: u8 = 255;
const LABEL_MAX: usize = 11;

pub const USAGE: &str = "\
Usage: mkfs.exfat [OPTIONS] DEVICE
\t-L | --volume-label=label          volume label
\t-c | --cluster-size=size           cluster size in bytes; takes K, M
\t-b | --boundary-align=size         alignment of FAT and clusters
\t-f | --full-format                 also write zeros (files only)
\t-V | --version, -v | --verbose, -h | --help
";

pub const TABLE: &[Opt<MkExfat>] = options! {
    "-h" | "--help" => Help;
    "-V" | "--version" => Version;
    "-v" | "--verbose" => Nothing;
    "-L" | "--volume-label" => Value("", |call, value| {
        call.label = Some(value.text());
        Ok(())
    });
    "-c" | "--cluster-size" => Value("", |call, value| {
        call.cluster = Some(power_of_two("cluster size", value)?);
        Ok(())
    });
    "-b" | "--boundary-align" => Value("", |call, value| {
        call.boundary = Some(power_of_two("boundary align", value)?);
        Ok(())
    });
    "-f" | "--full-format" => Set(|call| call.full = true);
};

fn power_of_two(what: &str, value: &options::Value<'_>) -> Parsed<u64> {
    let value = value.text();
    let bytes = size::parse(&value)
        .ok()
        .filter(|bytes| bytes.is_power_of_two());
    bytes.ok_or_else(|| Refusal::Told(format!("{what}({value}) is not a power of 2)")))
}

/// A valid command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MkExfat {
    device: OsString,
    label: Option<String>,
    cluster: Option<u64>,
    boundary: Option<u64>,
    full: bool,
}

fn parse(name: &str, words: &[OsString]) -> Parsed<MkExfat> {
    let mut call = MkExfat::default();
    call.device = device_operand(getopt(name, TABLE, words, &mut call)?)?;
    Ok(call)
}

/// Prints the reason why no volume was created. Returns `status`.
fn refuse(message: &str, status: u8) -> u8 {
    complain(message);
    print("\nexFAT format fail!\n");
    status
}

pub fn run(start: &Start<'_>) -> u8 {
    let call = match parse(&start.name.to_string_lossy(), start.words) {
        Ok(call) => call,
        Err(Refusal::Told(message)) => return refuse(&message, FAILED),
        Err(refusal) => return answer(refusal, USAGE, MISTAKE),
    };
    let label = call.label.as_deref().unwrap_or_default();
    if label.encode_utf16().count() > LABEL_MAX {
        return refuse("input string is too long", TOO_LONG);
    }
    print_version();
    if !can_open(&call.device) {
        print("\nexFAT format fail!\n");
        return FAILED;
    }
    let kind = std::fs::metadata(&call.device).map(|metadata| metadata.file_type());
    if call.full && kind.is_ok_and(|kind| kind.is_block_device()) {
        let message = "-f: forerun writes no zeros to a device; blkdiscard -z does that";
        return refuse(message, FAILED);
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
            &["-q", "d"],
            &["--pack-bitmap", "d"],
            &["d", "e"],
            &[],
            &["-h"],
        ] {
            assert!(parse("x", &words(line)).is_err(), "{line:?}");
        }
    }
}
