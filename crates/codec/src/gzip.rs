//! gzip members (RFC 1952): a header, a DEFLATE stream, its checksum and its length.

use std::cell::RefCell;

use libdeflater::{DecompressionError, Decompressor};

use crate::{DecodeError, deflate, deflate_span};

/// Length of the mandatory header fields (RFC 1952, section 2.3).
const HEADER: usize = 10;
const METHOD_DEFLATE: u8 = 8;
/// Length of the checksum and the decoded length after each member.
const TRAILER: usize = 8;

const FHCRC: u8 = 2;
const FEXTRA: u8 = 4;
const FNAME: u8 = 8;
const FCOMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// Decodes a member and verifies its checksum. Ignores bytes after it.
pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    let result = DECOMPRESSOR.with_borrow_mut(|context| context.gzip_decompress(input, out));
    result.map_err(|error| match error {
        DecompressionError::InsufficientSpace => DecodeError::Long { expected },
        DecompressionError::BadData => DecodeError::Damaged,
    })
}

/// Decodes until `out` is full or the member ends. Does not verify the checksum.
pub fn decode_prefix(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let stream = behind_header(input).ok_or(DecodeError::Damaged)?;
    deflate::decode_prefix(stream, out)
}

/// Decodes blocks that start at bit `skip` of `input` until `out` is full, and continues in the
/// following members. `history` has the decoded bytes before the blocks, from the same member. Does
/// not verify checksums.
pub fn decode_span(
    skip: u8,
    history: &[u8],
    input: &[u8],
    out: &mut [u8],
) -> Result<usize, DecodeError> {
    let (mut used, mut done) = deflate_span::decode_part(skip, history, input, out)?;
    let mut input = input;
    while done < out.len() {
        // Each member is longer than its trailer, so this loop ends.
        let behind = input.get(used + TRAILER..);
        input = behind.and_then(behind_header).ok_or(DecodeError::Damaged)?;
        let left = &mut out[done..];
        let (of_member, decoded) = deflate_span::decode_part(0, &[], input, left)?;
        (used, done) = (of_member, done + decoded);
    }
    Ok(done)
}

/// Decodes members, from the header of the first on, until `out` is full. Does not verify
/// checksums.
pub fn decode_members(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let span = behind_header(input).ok_or(DecodeError::Damaged)?;
    decode_span(0, &[], span, out)
}

/// Returns the length of the member header at the start of `input`, or `None` if the header is
/// damaged or truncated.
#[must_use]
pub fn header_len(input: &[u8]) -> Option<usize> {
    let behind = behind_header(input)?;
    Some(input.len() - behind.len())
}

/// Returns the bytes after the header of a member, or `None` if the header is damaged or truncated.
fn behind_header(input: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = input.split_at_checked(HEADER)?;
    let &[0x1f, 0x8b, METHOD_DEFLATE, flags, ..] = header else {
        return None;
    };
    if flags & RESERVED != 0 {
        return None;
    }
    if flags & FEXTRA != 0 {
        let (&[low, high], behind) = rest.split_first_chunk::<2>()?;
        rest = behind.get(usize::from(u16::from_le_bytes([low, high]))..)?;
    }
    for text in [FNAME, FCOMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if flags & FHCRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a member with these bytes in a stored block.
    fn member(bytes: &[u8]) -> Vec<u8> {
        let len = u16::try_from(bytes.len()).unwrap();
        let head = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0";
        let mut member = [&head[..], &[1], &len.to_le_bytes(), &(!len).to_le_bytes()].concat();
        member.extend_from_slice(bytes);
        member.extend([0; TRAILER]);
        member
    }

    #[test]
    fn a_span_continues_in_the_next_members() {
        let all = [member(b"first"), member(b""), member(b"second")].concat();
        let span = behind_header(&all).unwrap();
        for len in 0..=11 {
            let mut out = vec![0; len];
            assert_eq!(decode_span(0, b"", span, &mut out), Ok(len));
            assert_eq!(out, b"firstsecond"[..len]);
            out.fill(0);
            assert_eq!(decode_members(&all, &mut out), Ok(len));
            assert_eq!(out, b"firstsecond"[..len]);
        }
        let mut out = [0; 12];
        assert!(decode_span(0, b"", span, &mut out).is_err(), "it ends");
        for cut in 10..span.len() - 9 {
            let mut out = [0; 11];
            let span = span.get(..cut).unwrap();
            assert!(decode_span(0, b"", span, &mut out).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn headers_end_behind_their_optional_fields() {
        let header = |flags: u8, fields: &[u8]| {
            let mut member = vec![0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
            member.extend_from_slice(fields);
            member
        };
        let after = |flags: u8, fields: &[u8]| {
            let member = header(flags, fields);
            behind_header(&member).map(<[u8]>::to_vec)
        };
        assert_eq!(after(0, b"data"), Some(b"data".to_vec()));
        assert_eq!(after(FEXTRA, b"\x03\x00abcdata"), Some(b"data".to_vec()));
        assert_eq!(
            after(
                FEXTRA | FNAME | FCOMMENT | FHCRC,
                b"\x01\x00aname\0why\0hcdata"
            ),
            Some(b"data".to_vec())
        );
        for (flags, fields) in [
            (FEXTRA, &b"\x05\x00ab"[..]),
            (FEXTRA, b"\x05"),
            (FNAME, b"no end"),
            (FHCRC, b"h"),
            (RESERVED, b"data"),
        ] {
            assert_eq!(after(flags, fields), None, "{flags:#x}");
        }
        assert_eq!(header_len(&header(FNAME, b"name\0data")), Some(15));
        assert!(decode_members(&header(FNAME, b"no end"), &mut [0; 3]).is_err());
        assert_eq!(behind_header(b"\x1f\x8b\x08"), None);
        assert_eq!(behind_header(b"\x1f\x8b\x07\0\0\0\0\0\0\0"), None);
    }
}
