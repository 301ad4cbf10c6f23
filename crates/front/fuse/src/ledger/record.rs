//! The records of a ledger, as bytes.
//!
//! A record is its length, a checksum of the rest, a kind, up to four numbers, and bytes. Numbers are
//! in the order of the machine: the file never leaves it. A record that was cut short, or that has
//! another checksum, is the end.

/// Length and checksum.
const FRAME: usize = 12;
/// Longest record: far more than any name takes.
const MAX: usize = 64 << 10;

/// A fact that the kernel relies on after the server has died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The kernel is told of an inode by this name, so many times more.
    Told {
        number: u64,
        parent: u64,
        times: u64,
        is_directory: bool,
        name: Vec<u8>,
    },
    /// The kernel has forgotten it, so many times.
    Forgot { number: u64, times: u64 },
    /// It was opened so many times more.
    Opened { number: u64, times: u64 },
    /// One opening has ended.
    Closed { number: u64 },
    /// It has this name now.
    Named {
        number: u64,
        parent: u64,
        name: Vec<u8>,
    },
    /// It has no name any more, or none that leads to it.
    Nameless { number: u64 },
    /// It has, had or will have a name of this form, by a change that is not durable.
    At {
        number: u64,
        parent: u64,
        form: Vec<u8>,
    },
    /// It was made, and that is not durable.
    Made { number: u64 },
    /// Its contents or attributes were changed, and that is not durable.
    Wrote { number: u64 },
    /// The records after this one are not part of any commit that began before.
    Epoch { epoch: u64 },
    /// A commit that began at the end of this epoch is complete.
    Committed { epoch: u64 },
    /// How many servers the mount had before.
    Server { count: u64 },
    /// Openings by servers before this one lost changes.
    Lost { number: u64, server: u64 },
    /// A program was told of that, where one is enough.
    Reported { number: u64 },
}

impl Record {
    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME]);
        let (kind, numbers, bytes): (u8, [u64; 4], &[u8]) = match self {
            Self::Told {
                number,
                parent,
                times,
                is_directory,
                name,
            } => (0, [*number, *parent, *times, (*is_directory).into()], name),
            Self::Forgot { number, times } => (1, [*number, *times, 0, 0], &[]),
            Self::Opened { number, times } => (2, [*number, *times, 0, 0], &[]),
            Self::Closed { number } => (3, [*number, 0, 0, 0], &[]),
            Self::Named {
                number,
                parent,
                name,
            } => (4, [*number, *parent, 0, 0], name),
            Self::Nameless { number } => (5, [*number, 0, 0, 0], &[]),
            Self::At {
                number,
                parent,
                form,
            } => (6, [*number, *parent, 0, 0], form),
            Self::Made { number } => (13, [*number, 0, 0, 0], &[]),
            Self::Wrote { number } => (7, [*number, 0, 0, 0], &[]),
            Self::Epoch { epoch } => (8, [*epoch, 0, 0, 0], &[]),
            Self::Committed { epoch } => (9, [*epoch, 0, 0, 0], &[]),
            Self::Server { count } => (10, [*count, 0, 0, 0], &[]),
            Self::Lost { number, server } => (11, [*number, *server, 0, 0], &[]),
            Self::Reported { number } => (12, [*number, 0, 0, 0], &[]),
        };
        out.push(kind);
        for number in numbers {
            out.extend_from_slice(&number.to_ne_bytes());
        }
        out.extend_from_slice(bytes);
        let (_, record) = out.split_at_mut(start);
        let (frame, body) = record.split_at_mut(FRAME);
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let (len_at, sum_at) = frame.split_at_mut(4);
        len_at.copy_from_slice(&len.to_ne_bytes());
        sum_at.copy_from_slice(&checksum(body).to_ne_bytes());
    }

    /// Takes the first record off `bytes`. Returns nothing at the end.
    pub fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let len = usize::try_from(u32::from_ne_bytes(*len)).ok()?;
        if len > MAX {
            return None;
        }
        let (body, rest) = rest.split_at_checked(len)?;
        if checksum(body) != u64::from_ne_bytes(*sum) {
            return None;
        }
        let record = Self::decode(body)?;
        *bytes = rest;
        Some(record)
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (kind, mut rest) = body.split_first()?;
        let mut number = || {
            let (bytes, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_ne_bytes(*bytes))
        };
        let (number, second, third, fourth) = (number()?, number()?, number()?, number()?);
        let bytes = rest.to_vec();
        Some(match kind {
            0 => Self::Told {
                number,
                parent: second,
                times: third,
                is_directory: fourth != 0,
                name: bytes,
            },
            1 => Self::Forgot {
                number,
                times: second,
            },
            2 => Self::Opened {
                number,
                times: second,
            },
            3 => Self::Closed { number },
            4 => Self::Named {
                number,
                parent: second,
                name: bytes,
            },
            5 => Self::Nameless { number },
            6 => Self::At {
                number,
                parent: second,
                form: bytes,
            },
            13 => Self::Made { number },
            7 => Self::Wrote { number },
            8 => Self::Epoch { epoch: number },
            9 => Self::Committed { epoch: number },
            10 => Self::Server { count: number },
            11 => Self::Lost {
                number,
                server: second,
            },
            12 => Self::Reported { number },
            _ => return None,
        })
    }
}

/// Computes FNV-1a, eight bytes at a time. The only damage to expect is a record that is cut short.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        add(u64::from_ne_bytes(bytes));
    }
    words
        .remainder()
        .iter()
        .for_each(|byte| add((*byte).into()));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one record of each kind.
    pub fn all() -> Vec<Record> {
        let (number, parent, times, epoch) = (7, 1, 3, 9);
        let name = b"name \xff".to_vec();
        vec![
            Record::Told {
                number,
                parent,
                times,
                is_directory: true,
                name: name.clone(),
            },
            Record::Forgot { number, times },
            Record::Opened { number, times },
            Record::Closed { number },
            Record::Named {
                number,
                parent,
                name: name.clone(),
            },
            Record::Nameless { number },
            Record::At {
                number,
                parent,
                form: name,
            },
            Record::Made { number },
            Record::Wrote { number },
            Record::Epoch { epoch },
            Record::Committed { epoch },
            Record::Server { count: 2 },
            Record::Lost { number, server: 1 },
            Record::Reported { number },
        ]
    }

    #[test]
    fn records_survive_encoding() {
        let mut bytes = Vec::new();
        all().iter().for_each(|record| record.encode(&mut bytes));
        let mut rest = &bytes[..];
        let decoded: Vec<_> = std::iter::from_fn(|| Record::take(&mut rest)).collect();
        assert_eq!(decoded, all());
        assert!(rest.is_empty());
    }

    #[test]
    fn a_record_that_is_cut_or_changed_is_the_end() {
        for record in all() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(Record::take(&mut &bytes[..len]), None, "{record:?} {len}");
                let mut zeros = bytes.clone();
                zeros[len..].fill(0);
                let cut = Record::take(&mut &zeros[..]);
                assert!(cut.is_none_or(|cut| cut == record), "{record:?} {len}");
            }
            for at in 4..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(Record::take(&mut &changed[..]), None, "{record:?} {at}");
            }
        }
        assert_eq!(Record::take(&mut &[0; 64][..]), None);
    }
}
