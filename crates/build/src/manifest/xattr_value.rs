//! Values of extended attributes in the syntax of getfattr(1) and setfattr(1).

/// Parses plain text, `0x` with hexadecimal digits, `0s` with base64, or `0t` with text in which
/// `\ooo` is an octal byte and `\\` a backslash. Returns `None` for an invalid value.
pub fn parse(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => hex(digits),
        [b'0', b's' | b'S', digits @ ..] => base64(digits),
        [b'0', b't' | b'T', text @ ..] => octal_text(text),
        _ => Some(text.to_vec()),
    }
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let pairs = digits.chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok()?;
        let valid = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        u8::from_str_radix(text, 16).ok().filter(|_| valid)
    });
    pairs.collect()
}

fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    let padding = digits
        .iter()
        .rev()
        .take_while(|&&byte| byte == b'=')
        .count();
    let data = digits.get(..digits.len() - padding)?;
    if padding > 2 || !digits.len().is_multiple_of(4) {
        return None;
    }
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for &digit in data {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

fn octal_text(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
        } else if let Some((b'\\', after)) = rest.split_first() {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = rest.get(..3)?;
            let octal = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(octal, 8).ok()?);
            rest = rest.get(3..)?;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("plain = text", Some(b"plain = text")),
            ("0x0aFf", Some(b"\x0a\xff")),
            ("0x", Some(b"")),
            ("0x1", None),
            ("0x+1", None),
            ("0saGk=", Some(b"hi")),
            ("0saGkh", Some(b"hi!")),
            ("0sAA==", Some(b"\0")),
            ("0sA", None),
            ("0s====", None),
            ("0sa?k=", None),
            ("0ta\\012\\\\b", Some(b"a\n\\b")),
            ("0t\\9", None),
            ("0t\\777", None),
        ] {
            assert_eq!(parse(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
