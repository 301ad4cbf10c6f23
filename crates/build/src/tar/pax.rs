//! PAX records, for values that a header has no room for: long paths, fine times, extended
//! attributes.
//!
//! They are parsed here and not by the tar crate, which ends a record at the first line break:
//! values of attributes are any bytes, such as the capabilities of programs. The crate reads the
//! headers; the bytes it reads are recorded on a [`Tape`] and parsed again.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::Arc;

use forerun_io::{u64_from, usize_from};
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

/// Length of a header, and unit of padding.
const BLOCK: usize = 512;
/// Most bytes of all headers of one entry: far more than the attributes of any filesystem take.
const TAPE_MAX: usize = 16 << 20;

/// A record: key and value.
pub type Record = (Vec<u8>, Vec<u8>);

/// A recording of the headers before an entry's data, and the data of a sparse file.
#[derive(Clone, Default)]
pub struct Tape(Rc<RefCell<TapeState>>);

#[derive(Default)]
struct TapeState {
    /// Offset in the archive of the next byte that is read.
    at: u64,
    /// Headers are recorded from this offset on, while it runs.
    headers_at: u64,
    runs: bool,
    bytes: Vec<u8>,
    over: bool,
    /// Data to be copied when they are passed.
    copy: Option<TapeCopy>,
}

/// A range of the archive, and its place in a file.
struct TapeCopy {
    range: Range<u64>,
    to: Arc<File>,
    offset: u64,
}

/// A stream whose bytes are recorded on a tape.
pub struct Taped<R> {
    pub inner: R,
    pub tape: Tape,
}

/// The headers of an entry besides its own.
pub struct Headers {
    pub records: Vec<Record>,
    /// The parts of a sparse file in GNU's older form, and the number of blocks with more of them behind the header.
    pub sparse: Option<(Vec<(u64, u64)>, u64)>,
}

impl Tape {
    /// Starts a new recording. What lies before `headers_at` is the data of the entry before.
    pub fn start(&self, headers_at: u64) {
        let mut state = self.0.borrow_mut();
        state.bytes.clear();
        (state.runs, state.over) = (true, false);
        state.headers_at = headers_at;
    }

    /// Stops, and returns what the recorded headers say.
    pub fn stop(&self) -> io::Result<Headers> {
        let mut state = self.0.borrow_mut();
        state.runs = false;
        if state.over {
            return Err(bad("headers of over 16 MiB for one entry"));
        }
        headers(&state.bytes)
    }

    /// Has the bytes of a range of the archive copied to `offset` of a file once they are read.
    pub fn copy(&self, range: Range<u64>, to: Arc<File>, offset: u64) {
        self.0.borrow_mut().copy = Some(TapeCopy { range, to, offset });
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> u64 {
        self.0.borrow().at
    }
}

impl<R: Read> Read for Taped<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(out)?;
        let bytes = &out[..got];
        let mut state = self.tape.0.borrow_mut();
        let at = state.at;
        state.at += u64_from(got);
        if state.runs {
            let headers = from(bytes, at, state.headers_at);
            if state.bytes.len() + headers.len() > TAPE_MAX {
                state.over = true;
            } else {
                state.bytes.extend_from_slice(headers);
            }
        }
        if let Some(copy) = &state.copy {
            let end = copy.range.end.saturating_sub(at);
            let before = bytes.get(..usize_from(end)).unwrap_or(bytes);
            let data = from(before, at, copy.range.start);
            let place = at.max(copy.range.start) - copy.range.start;
            copy.to.write_all_at(data, copy.offset + place)?;
        }
        Ok(got)
    }
}

/// Returns the bytes from `start` on, of those that lie at `at`.
fn from(bytes: &[u8], at: u64, start: u64) -> &[u8] {
    let skipped = usize_from(start.saturating_sub(at));
    bytes.get(skipped..).unwrap_or_default()
}

/// Parses the headers before an entry's data.
fn headers(mut blocks: &[u8]) -> io::Result<Headers> {
    let mut found = Vec::new();
    while let Some((head, rest)) = blocks.split_at_checked(BLOCK) {
        let header = Header::from_byte_slice(head);
        let kind = header.entry_type();
        let has_body = matches!(
            kind,
            EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink
        );
        if !has_body {
            let sparse = match kind {
                EntryType::GNUSparse => Some(old_sparse(header, rest)?),
                _ => None,
            };
            return Ok(Headers {
                records: found,
                sparse,
            });
        }
        let len = usize_from(header.entry_size()?);
        let body = rest
            .get(..len)
            .ok_or_else(|| bad("a header is cut short"))?;
        if kind == EntryType::XHeader {
            parse(body, &mut found)?;
        }
        let next = len.div_ceil(BLOCK) * BLOCK;
        blocks = rest.get(next..).unwrap_or_default();
    }
    Ok(Headers {
        records: found,
        sparse: None,
    })
}

/// Returns the parts of a sparse file that its header and the blocks behind it list, and the number of these
/// blocks. The reader of headers has checked that the parts are in order.
fn old_sparse(header: &Header, mut rest: &[u8]) -> io::Result<(Vec<(u64, u64)>, u64)> {
    let broken = || bad("damaged header of a sparse file");
    let gnu = header.as_gnu().ok_or_else(broken)?;
    let mut parts = Vec::new();
    let mut add = |part: &GnuSparseHeader| {
        if !part.is_empty() {
            parts.push((part.offset()?, part.length()?));
        }
        Ok::<_, io::Error>(())
    };
    gnu.sparse.iter().try_for_each(&mut add)?;
    let (mut more, mut blocks) = (gnu.is_extended(), 0);
    while more {
        let (block, behind) = rest.split_at_checked(BLOCK).ok_or_else(broken)?;
        let mut next = GnuExtSparseHeader::new();
        next.as_mut_bytes().copy_from_slice(block);
        next.sparse.iter().try_for_each(&mut add)?;
        (more, rest) = (next.is_extended(), behind);
        blocks += 1;
    }
    Ok((parts, blocks))
}

/// Parses records of the form `LENGTH KEY=VALUE` and a line break; the length covers all of it.
fn parse(mut body: &[u8], found: &mut Vec<Record>) -> io::Result<()> {
    let broken = || bad("damaged PAX header");
    while !body.is_empty() {
        let space = body.iter().take(20).position(|&byte| byte == b' ');
        let (digits, _) = body.split_at(space.ok_or_else(broken)?);
        let len = super::sparse::number(digits)?;
        let (record, rest) = body.split_at_checked(usize_from(len)).ok_or_else(broken)?;
        let pair = record.get(digits.len() + 1..).ok_or_else(broken)?;
        let pair = pair.strip_suffix(b"\n").ok_or_else(broken)?;
        let equals = pair.iter().position(|&byte| byte == b'=');
        let (key, value) = pair.split_at(equals.ok_or_else(broken)?);
        found.push((key.to_vec(), value.get(1..).unwrap_or_default().to_vec()));
        body = rest;
    }
    Ok(())
}

fn bad(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_long_as_it_says() {
        let mut found = Vec::new();
        parse(b"9 a=b\nc\n\n15 path=a=b/cd\n5 k=\n", &mut found).unwrap();
        let expected: &[(&[u8], &[u8])] = &[(b"a", b"b\nc\n"), (b"path", b"a=b/cd"), (b"k", b"")];
        let found: Vec<_> = found
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        assert_eq!(found, expected);
        for body in [
            &b"x"[..],
            b"5 a=b",
            b"0 a=b\n",
            b"99 a=b\n",
            b"5 ab\n",
            b" 5 a=\n",
            b"2 \n",
            b"18446744073709551615 a=\n",
        ] {
            assert!(parse(body, &mut Vec::new()).is_err(), "{body:?}");
        }
    }
}
