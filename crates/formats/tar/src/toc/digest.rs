//! SHA-256 digests in the notation of tables of contents.

use sha2::{Digest as _, Sha256};

pub type Sha = [u8; 32];

pub fn of(bytes: &[u8]) -> Sha {
    Sha256::digest(bytes).into()
}

/// Parses `sha256:` and 64 hexadecimal digits.
pub fn parse(text: &str) -> Option<Sha> {
    let digits = text.strip_prefix("sha256:")?.as_bytes();
    let mut digest = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let &[high, low] = pair else {
            return None;
        };
        *byte = (nibble(high)? << 4) | nibble(low)?;
    }
    Some(digest)
}

pub fn hex(digest: &Sha) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_64_digits_of_one_form() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let text = format!("sha256:{empty}");
        assert_eq!(parse(&text), Some(of(b"")));
        assert_eq!(hex(&of(b"")), empty);
        for text in [
            empty.to_string(),
            text.to_uppercase(),
            format!("{text}0"),
            format!("sha256:{}", &empty[1..]),
            format!("sha256:{}g", &empty[1..]),
            "sha512:00".to_string(),
            String::new(),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }
}
