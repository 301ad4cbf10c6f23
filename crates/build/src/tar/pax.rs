//! PAX records, for values that a header has no room for: long paths, fine times, extended
//! attributes.
//!
//! They are parsed here and not by the tar crate, which ends a record at the first line break:
//! values of attributes are any bytes, such as the capabilities of programs. The crate reads the
//! headers; the bytes it reads are recorded on a [`Tape`] and parsed again.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use forerun_io::saturating_usize;
use tar::{EntryType, Header};

/// Length of a header, and unit of padding.
const BLOCK: usize = 512;
/// Most bytes of all headers of one entry: far more than the attributes of any filesystem take.
const TAPE_MAX: usize = 16 << 20;

/// A record: key and value.
pub type Record = (Vec<u8>, Vec<u8>);

/// A recording of the bytes that are read while it runs.
#[derive(Clone, Default)]
pub struct Tape(Rc<RefCell<TapeState>>);

#[derive(Default)]
struct TapeState {
    runs: bool,
    bytes: Vec<u8>,
    over: bool,
}

/// A stream whose bytes are recorded on a tape.
pub struct Taped<R> {
    pub inner: R,
    pub tape: Tape,
}

impl Tape {
    /// Starts a new recording.
    pub fn start(&self) {
        let mut state = self.0.borrow_mut();
        state.bytes.clear();
        (state.runs, state.over) = (true, false);
    }

    /// Stops, and returns the records among the recorded bytes: all that came before one entry's
    /// data.
    pub fn stop(&self) -> io::Result<Vec<Record>> {
        let mut state = self.0.borrow_mut();
        state.runs = false;
        if state.over {
            return Err(bad("headers of over 16 MiB for one entry"));
        }
        // The end of the padding of the previous entry comes first.
        let padding = state.bytes.len() % BLOCK;
        records(state.bytes.get(padding..).unwrap_or_default())
    }
}

impl<R: Read> Read for Taped<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(out)?;
        let mut state = self.tape.0.borrow_mut();
        if state.runs {
            if state.bytes.len() + got > TAPE_MAX {
                state.over = true;
            } else {
                state
                    .bytes
                    .extend_from_slice(out.get(..got).unwrap_or_default());
            }
        }
        Ok(got)
    }
}

/// Returns the records of all extended headers among these blocks.
fn records(mut blocks: &[u8]) -> io::Result<Vec<Record>> {
    let mut found = Vec::new();
    while let Some((head, rest)) = blocks.split_at_checked(BLOCK) {
        let header = Header::from_byte_slice(head);
        let kind = header.entry_type();
        let has_body = matches!(
            kind,
            EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink
        );
        if !has_body {
            return Ok(found);
        }
        let len = saturating_usize(header.entry_size()?);
        let body = rest
            .get(..len)
            .ok_or_else(|| bad("a header is cut short"))?;
        if kind == EntryType::XHeader {
            parse(body, &mut found)?;
        }
        let next = len.div_ceil(BLOCK).saturating_mul(BLOCK);
        blocks = rest.get(next..).unwrap_or_default();
    }
    Ok(found)
}

/// Parses records of the form `LENGTH KEY=VALUE` and a line break; the length covers all of it.
fn parse(mut body: &[u8], found: &mut Vec<Record>) -> io::Result<()> {
    let broken = || bad("damaged PAX header");
    while !body.is_empty() {
        let space = body.iter().take(20).position(|&byte| byte == b' ');
        let (digits, _) = body.split_at(space.ok_or_else(broken)?);
        let len = super::sparse::number(digits)?;
        let (record, rest) = body
            .split_at_checked(saturating_usize(len))
            .ok_or_else(broken)?;
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
