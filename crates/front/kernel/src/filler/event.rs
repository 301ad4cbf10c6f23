//! The bytes that a fanotify group hands out, as fanotify(7) describes them: events with a file
//! descriptor and the range of the file that is about to be read.
//!
//! Nothing here calls the kernel.

use std::ops::Range;
use std::os::fd::RawFd;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the layout that this parser reads.
const VERSION: u8 = 3;
/// The record with the range that is about to be read.
const INFO_RANGE: u8 = 6;
/// Length of the head of every record: kind, padding, length.
const INFO_HEAD_LEN: usize = 4;

/// Lets the read go on.
const ALLOW: u32 = 1;
/// Fails it.
const DENY: u32 = 2;
/// Where the reason of a failure is in the answer.
const REASON_SHIFT: u32 = 24;
/// EIO.
const IO_ERROR: u32 = 5;

/// `struct fanotify_event_metadata`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct Head {
    event_len: u32,
    vers: u8,
    reserved: u8,
    metadata_len: u16,
    mask: u64,
    fd: i32,
    pid: i32,
}

/// `struct fanotify_event_info_range`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct RangeInfo {
    info_type: u8,
    pad: u8,
    len: u16,
    pad2: u32,
    offset: u64,
    count: u64,
}

/// `struct fanotify_response`.
#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
#[repr(C)]
struct Response {
    fd: i32,
    response: u32,
}

const _: () = assert!(size_of::<Head>() == 24);
const _: () = assert!(size_of::<RangeInfo>() == 24);
const _: () = assert!(size_of::<Response>() == 8);

/// A read that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The descriptor that names the event in the answer. Negative where the kernel could not open
    /// one: then it has denied the read itself.
    pub fd: RawFd,
    /// Bytes of the file that are about to be read; nothing where the kernel does not say.
    pub range: Option<Range<u64>>,
}

/// The answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Allow,
    /// It fails with an I/O error.
    Fail,
    /// It fails without a reason, for kernels that take none.
    Deny,
}

/// Returns the events in the bytes of one read(2), and whether all of them were parsed. Events behind
/// one that cannot be parsed are lost.
pub fn parse(mut bytes: &[u8]) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let Some((event, rest)) = parse_one(bytes) else {
            return (events, false);
        };
        events.push(event);
        bytes = rest;
    }
    (events, true)
}

fn parse_one(bytes: &[u8]) -> Option<(Event, &[u8])> {
    let (head, _) = Head::read_from_prefix(bytes).ok()?;
    let len = usize::try_from(head.event_len).ok()?;
    let metadata_len = usize::from(head.metadata_len);
    if head.vers != VERSION || metadata_len < size_of::<Head>() {
        return None;
    }
    let (event, rest) = bytes.split_at_checked(len)?;
    let range = range(event.get(metadata_len..)?);
    Some((Event { fd: head.fd, range }, rest))
}

/// Returns the range, if there is a record of it.
fn range(mut records: &[u8]) -> Option<Range<u64>> {
    while let [kind, _, low, high, ..] = records {
        let len = usize::from(u16::from_ne_bytes([*low, *high]));
        if len < INFO_HEAD_LEN {
            return None;
        }
        let (record, rest) = records.split_at_checked(len)?;
        if *kind == INFO_RANGE {
            let (info, _) = RangeInfo::read_from_prefix(record).ok()?;
            return Some(info.offset..info.offset.saturating_add(info.count));
        }
        records = rest;
    }
    None
}

/// Returns the bytes of an answer.
pub fn response(fd: RawFd, verdict: Verdict) -> [u8; 8] {
    let response = match verdict {
        Verdict::Allow => ALLOW,
        Verdict::Fail => DENY | IO_ERROR << REASON_SHIFT,
        Verdict::Deny => DENY,
    };
    let mut bytes = [0; 8];
    // The lengths are the same.
    let _ = Response { fd, response }.write_to(&mut bytes);
    bytes
}

/// Parses bytes as those of a read(2), for the fuzz targets.
pub fn exercise(bytes: &[u8]) {
    let (events, _is_whole) = parse(bytes);
    // Each takes at least its head.
    assert!(events.len() <= bytes.len() / size_of::<Head>());
    for range in events.into_iter().filter_map(|event| event.range) {
        assert!(range.start <= range.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fd: i32, more: usize) -> Vec<u8> {
        let head = Head {
            event_len: u32::try_from(24 + more).unwrap(),
            vers: VERSION,
            reserved: 0,
            metadata_len: 24,
            mask: 1 << 20,
            fd,
            pid: 1,
        };
        head.as_bytes().to_vec()
    }

    fn range_info(offset: u64, count: u64) -> Vec<u8> {
        let info = RangeInfo {
            info_type: INFO_RANGE,
            pad: 0,
            len: 24,
            pad2: 0,
            offset,
            count,
        };
        info.as_bytes().to_vec()
    }

    #[test]
    fn events_with_and_without_ranges() {
        let unknown = [9, 0, 8, 0, 1, 2, 3, 4];
        let bytes = [
            head(7, 24),
            range_info(4096, 8192),
            head(8, 0),
            head(9, 32),
            unknown.to_vec(),
            range_info(u64::MAX, 5),
        ]
        .concat();
        let (events, whole) = parse(&bytes);
        assert!(whole);
        let of = |fd, range| Event { fd, range };
        let end = u64::MAX..u64::MAX;
        let expected = [of(7, Some(4096..12288)), of(8, None), of(9, Some(end))];
        assert_eq!(events, expected);
    }

    #[test]
    fn what_is_cut_or_odd_ends_it() {
        let bytes = [head(7, 24), range_info(0, 1)].concat();
        for len in 1..bytes.len() {
            assert_eq!(parse(&bytes[..len]), (Vec::new(), false), "{len}");
        }
        let mut other = bytes.clone();
        other[4] = VERSION + 1;
        assert_eq!(parse(&other), (Vec::new(), false));
        // A record of no length would never end.
        let mut endless = bytes.clone();
        endless[24..28].copy_from_slice(&[9, 0, 0, 0]);
        let event = Event { fd: 7, range: None };
        assert_eq!(parse(&endless), (vec![event], true));
    }

    #[test]
    fn answers() {
        assert_eq!(response(7, Verdict::Allow), [7, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(response(7, Verdict::Deny), [7, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(response(256, Verdict::Fail), [0, 1, 0, 0, 2, 0, 0, 5]);
    }
}
