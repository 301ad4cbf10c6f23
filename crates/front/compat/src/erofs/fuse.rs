//! `erofsfuse`: mounts of EROFS images.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::{tell, tell_unopened, usage};
use crate::error::Failure;
use crate::exit::Exit;
use crate::fuse_words::{Refusal, parse};
use crate::squashfuse::mount_call;
use crate::{Start, complain, mount};

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// Mounts. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let words = start.words;
    let asks = |word: &OsString| word == "-h" || word == "--help";
    if words.iter().any(asks) {
        return usage::print(usage::FUSE);
    }
    if words.iter().any(|word| word == "-V" || word == "--version") {
        return usage::version("erofsfuse");
    }
    let (words, own) = own_words(words);
    let mut call = match parse(&words, rustix::process::geteuid().is_root()) {
        Ok(call) => call,
        Err(Refusal::Usage) => return usage::complain(usage::FUSE, FAILED),
        Err(Refusal::Value(word)) => {
            complain(&format!("fuse: invalid parameter in option `{word}'"));
            return FAILED;
        }
        Err(Refusal::Unknown(words)) => {
            complain(&format!("fuse: unknown option(s): `{words}'"));
            return FAILED;
        }
    };
    call.options.extend(own);
    let [image, dir] = call.operands.as_slice() else {
        return usage::complain(usage::FUSE, FAILED);
    };
    let args = mount_call(start.name, "erofs", &call, (image, dir));
    let tell = |failure: &Failure| match failure.exit {
        Exit::Source | Exit::Format => tell_unopened(image, failure),
        _ => tell(failure),
    };
    mount(start.commands, &args, call.debug, tell, |exit| match exit {
        Exit::Ok => DONE,
        _ => FAILED,
    })
}

/// Separates the program's own options, as words for the mount, from those of libfuse.
fn own_words(words: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let (mut others, mut own) = (Vec::new(), Vec::new());
    for word in words {
        let bytes = word.as_bytes();
        let value = |start: &str| {
            let value = bytes.strip_prefix(start.as_bytes())?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        if let Some(device) = value("--device=") {
            // A comma would begin another word.
            own.push(format!("device={}", device.replace(',', "\\,")));
        } else if let Some(offset) = value("--offset=") {
            others.push(OsString::from(format!("-ooffset={offset}")));
        } else if value("--dbglevel=").is_none() {
            others.push(word.clone());
        }
    }
    (others, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_become_words_of_the_mount() {
        let words = ["--offset=7", "-f", "--dbglevel=9", "--device=a,b", "i", "d"];
        let (others, own) = own_words(&words.map(OsString::from));
        assert_eq!(others, ["-ooffset=7", "-f", "i", "d"]);
        assert_eq!(own, ["device=a\\,b"]);
    }
}
