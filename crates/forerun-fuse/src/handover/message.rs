//! What the old process tells the new one, as text: a line for each fact, the path last, to the end.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{HandoverError, Negotiated};

/// To be raised with every change to these messages, and with every change to which number a driver
/// or [`Inodes`](crate::inode::Inodes) gives a node, or which cookie a directory's entry: the kernel
/// keeps numbers and cookies of the old process.
const HEAD: &[u8] = b"forerun handover 1";
/// Longest message.
pub const MAX: usize = 32 << 10;

/// A mount, as it is offered to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where it is mounted.
    pub path: PathBuf,
    /// Its device number.
    pub device: (u32, u32),
    /// What was agreed with the kernel.
    pub negotiated: Negotiated,
    /// Whether the kernel may be given files to read by itself.
    pub passthrough: bool,
    /// What the image looked like to the front end of the old process.
    pub volume: Vec<u8>,
    /// What the image is, in the words of the caller.
    pub identity: Vec<u8>,
}

impl Offer {
    /// As a message; nothing where it would be too long.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (major, minor) = self.device;
        let Negotiated { abi, flags } = self.negotiated;
        let facts = format!(
            "\n{major} {minor} {abi} {flags} {}\n",
            u8::from(self.passthrough)
        );
        let mut text = HEAD.to_vec();
        text.extend_from_slice(facts.as_bytes());
        for part in [&self.volume, &self.identity] {
            let line = part.iter().map(|byte| match byte {
                b'\n' => b' ',
                byte => *byte,
            });
            text.extend(line);
            text.push(b'\n');
        }
        text.extend_from_slice(self.path.as_os_str().as_bytes());
        (text.len() <= MAX).then_some(text)
    }

    /// From a message.
    ///
    /// # Errors
    /// [`HandoverError::Version`].
    pub fn decode(message: &[u8]) -> Result<Self, HandoverError> {
        Self::parse(message).ok_or(HandoverError::Version)
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let mut lines = message.splitn(5, |byte| *byte == b'\n');
        if lines.next()? != HEAD {
            return None;
        }
        let facts = std::str::from_utf8(lines.next()?).ok()?;
        let [major, minor, abi, flags, passthrough]: [u64; 5] = facts
            .split(' ')
            .map(|number| number.parse().ok())
            .collect::<Option<Vec<_>>>()?
            .try_into()
            .ok()?;
        let (volume, identity) = (lines.next()?.to_vec(), lines.next()?.to_vec());
        let path = OsStr::from_bytes(lines.next()?).as_bytes().to_vec();
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        path.is_absolute().then_some(Self {
            path,
            device: (major.try_into().ok()?, minor.try_into().ok()?),
            negotiated: Negotiated {
                abi: abi.try_into().ok()?,
                flags,
            },
            passthrough: passthrough != 0,
            volume,
            identity,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            path: PathBuf::from(OsStr::from_bytes(b"/mnt/a\nb\xff 1")),
            device: (0, 77),
            negotiated: Negotiated {
                abi: 45,
                flags: 1 << 63 | 5,
            },
            passthrough: true,
            volume: b"romfs 32 1024".to_vec(),
            identity: Vec::new(),
        }
    }

    #[test]
    fn there_and_back() {
        let message = offer().encode().unwrap();
        assert_eq!(Offer::decode(&message).unwrap(), offer());
    }

    #[test]
    fn what_would_break_the_lines_does_not() {
        let identity = b"a\nb".to_vec();
        let message = Offer {
            identity,
            ..offer()
        }
        .encode()
        .unwrap();
        let back = Offer::decode(&message).unwrap();
        assert_eq!(back.identity, b"a b");
        assert_eq!(back.path, offer().path);
    }

    #[test]
    fn other_versions_and_nonsense_are_refused() {
        let message = offer().encode().unwrap();
        for len in 0..message.len() - 10 {
            assert!(Offer::decode(message.get(..len).unwrap()).is_err(), "{len}");
        }
        for wrong in [
            "",
            "forerun handover 2\n0 1 2 3 0\n\n\n/",
            "forerun handover 1\n0 1 2 3\n\n\n/",
        ] {
            assert!(Offer::decode(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn too_long_is_no_message() {
        let identity = vec![b'x'; MAX];
        assert_eq!(
            Offer {
                identity,
                ..offer()
            }
            .encode(),
            None
        );
    }
}
