//! `erofsfuse`: mounts EROFS images.

use super::{tell, tell_unopened, usage};
use crate::error::Failure;
use crate::exit::Exit;
use crate::fuse_words::{self, FuseCall, parse};
use crate::options::Effect::{Nothing, Value};
use crate::options::{Manual, Opt, Refusal, options};
use crate::squashfuse::mount_call;
use crate::{Start, mount};

const DONE: u8 = 0;
const FAILED: u8 = 1;

const MANUAL: Manual<'_> = Manual {
    version: "erofsfuse 1.8",
    usage: usage::FUSE,
    mistake: FAILED,
};

/// The options in addition to those of libfuse.
pub const TABLE: &[Opt<FuseCall>] = options! {
    // An unescaped comma would begin another option.
    "--device=*" => Value("", |call, value| call.pass_on(&format!("device={}", value.text().replace(',', "\\,"))));
    "--offset=*" => Value("", |call, value| call.apply(&format!("offset={}", value.text())));
    "--dbglevel=*" => Nothing;
};

/// Mounts the image. Returns the exit status.
pub fn run(start: &Start<'_>) -> u8 {
    let is_root = rustix::process::geteuid().is_root();
    let call = match parse(&[TABLE, fuse_words::TABLE], start.words, is_root) {
        Ok(call) => call,
        Err(Refusal::Usage(message)) if !message.is_empty() => {
            return MANUAL.answer(Refusal::Told(message));
        }
        Err(refusal) => return MANUAL.answer(refusal),
    };
    let [image, dir] = call.operands.as_slice() else {
        return MANUAL.answer(Refusal::Usage(String::new()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_become_words_of_the_mount() {
        let words = ["--offset=7", "-f", "--dbglevel=9", "--device=a,b", "i", "d"];
        let words = words.map(Into::into);
        let call = parse(&[TABLE, fuse_words::TABLE], &words, false).unwrap();
        assert_eq!(call.operands, ["i", "d"]);
        assert_eq!(call.options, ["offset=7", "device=a\\,b"]);
    }
}
