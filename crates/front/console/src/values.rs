//! Values of options and of the environment that several commands use.

use crate::error::{Failure, Result};

/// Reads the latest time that the output may contain, if the environment sets one.
pub fn source_date_epoch() -> Result<Option<i64>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    match seconds {
        Some(seconds) => Ok(Some(seconds)),
        None => {
            let value = value.to_string_lossy();
            let message = format!("SOURCE_DATE_EPOCH={value} is not a number of seconds");
            Err(Failure::usage(message))
        }
    }
}

/// Parses a UUID into bytes in the order of its digits.
pub fn parse_uuid(text: &str) -> std::result::Result<[u8; 16], String> {
    let bad = || "not a UUID such as 01234567-89ab-cdef-0123-456789abcdef".to_string();
    let lens: Vec<_> = text.split('-').map(str::len).collect();
    if lens != [8, 4, 4, 4, 12] {
        return Err(bad());
    }
    let digits = text.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).map_err(|_| bad())?;
    // A sign is not a digit.
    if digits.starts_with('+') {
        return Err(bad());
    }
    Ok(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let expected = [
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 7,
        ];
        for (text, expected) in [
            ("01234567-89ab-cdef-0001-020304050607", Some(expected)),
            ("01234567-89AB-CDEF-0001-020304050607", Some(expected)),
            ("0123456789abcdef0001020304050607", None),
            ("01234567-89ab-cdef-0001-02030405060x", None),
            ("+1234567-89ab-cdef-0001-020304050607", None),
        ] {
            assert_eq!(parse_uuid(text).ok(), expected, "{text}");
        }
    }
}
