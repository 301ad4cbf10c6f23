//! Certificates and keys, with their names.

use forerun_io::{u64_from, usize_from};

use super::{Bytes, Found};

/// Maximum number of bytes of a certificate or key.
const MOST: u64 = 16 << 10;

pub fn pem(b: &mut Bytes<'_>) -> Option<Found> {
    if !b.has(0, b"-----BEGIN ") {
        return None;
    }
    let line = b.up_to(11, 64);
    let len = line.windows(5).position(|window| window == b"-----")?;
    let kind = line.get(..len)?.to_vec();
    let is_kind = kind
        .iter()
        .all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b' '));
    if !is_kind || kind.is_empty() {
        return None;
    }
    // A program that searches for this line contains the line, but no key after it.
    let after = 11 + u64_from(len) + 5;
    if !matches!(b.array::<1>(after)?, [b'\n' | b'\r']) {
        return None;
    }
    let last = [b"-----END ", &kind[..], b"-----"].concat();
    let end = b.find(after, &last, MOST)? + u64_from(last.len());
    let end = if b.has(end, b"\n") { end + 1 } else { end };
    Some(Found::of(end).details(String::from_utf8_lossy(&kind).to_lowercase()))
}

/// Returns the length of the sequence at the start, and the length of its header.
fn sequence(b: &mut Bytes<'_>) -> Option<(u64, u64)> {
    match b.array::<2>(0)? {
        [0x30, 0x81] => Some((b.be(2, 1)? + 3, 3)),
        [0x30, 0x82] => Some((b.be(2, 2)? + 4, 4)),
        _ => None,
    }
}

pub fn certificate(b: &mut Bytes<'_>) -> Option<Found> {
    let (len, _) = sequence(b)?;
    let inner = b.be(6, 2)?;
    let is_valid = b.has(4, b"\x30\x82") && inner + 8 < len && len <= b.left();
    if !is_valid {
        return None;
    }
    let bytes = b.at(0, usize_from(len))?;
    // The subject comes after the issuer.
    let mut places = bytes.windows(5).enumerate();
    let last = places.rfind(|(_, window)| window == b"\x06\x03\x55\x04\x03");
    let name = last.and_then(|(at, _)| {
        let value = bytes.get(at + 5..)?;
        let (&kind, len) = (value.first()?, usize::from(*value.get(1)?));
        matches!(kind, 0x0c | 0x13 | 0x14 | 0x16).then(|| value.get(2..2 + len))?
    });
    let label = name.unwrap_or_default().to_vec();
    Some(Found::of(len).label(label))
}

/// PKCS #8: the algorithm, and the key in a string of octets.
pub fn pkcs8(b: &mut Bytes<'_>) -> Option<Found> {
    let (len, head) = sequence(b)?;
    let at = head + 3;
    let algorithm = b.be(at + 1, 1)?;
    let name = match b.at(at + 2, 11)? {
        [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1] => "RSA",
        [0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, ..] => "elliptic curve",
        [0x06, 3, 0x2b, 0x65, 0x70, ..] => "Ed25519",
        _ => return None,
    };
    let is_valid = b.has(at + 2 + algorithm, b"\x04") && len <= b.left();
    is_valid.then(|| Found::of(len).details(name))
}

/// PKCS #1: the modulus and the exponent follow the version.
pub fn pkcs1(b: &mut Bytes<'_>) -> Option<Found> {
    let (len, _) = sequence(b)?;
    let modulus = b.be(9, 2)?;
    let is_size = matches!(modulus, 129 | 193 | 257 | 385 | 513);
    let is_valid = is_size && b.has(11 + modulus, b"\x02\x03\x01\x00\x01") && len <= b.left();
    is_valid.then(|| Found::of(len).details("RSA"))
}

pub fn ssh(b: &mut Bytes<'_>) -> Option<Found> {
    let line = b.up_to(0, 4096);
    let line = line
        .split(|byte| matches!(byte, b'\n' | b'\r' | 0))
        .next()?;
    let mut words = line.split(|&byte| byte == b' ');
    let (kind, key) = (words.next()?, words.next()?);
    let is_key = key.len() >= 68
        && key
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte));
    let comment = words.next().unwrap_or_default().to_vec();
    let kind = String::from_utf8_lossy(kind).into_owned();
    let len = u64_from(line.len());
    is_key.then(|| Found::of(len).label(comment).details(kind))
}
