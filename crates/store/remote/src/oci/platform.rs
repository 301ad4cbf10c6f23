//! The platform of a manifest in an index.

use std::fmt;
use std::str::FromStr;

/// Operating system, architecture and variant, by their Go names: `linux/amd64`, `linux/arm/v7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    /// Variant of the architecture. `None` matches all variants.
    pub variant: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a platform is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as linux/amd64")]
pub struct NoPlatform;

impl Platform {
    /// Returns whether an image for `other` runs on this platform.
    pub fn is(&self, other: &Self) -> bool {
        let is_variant = self.variant.is_none() || self.variant == other.variant;
        self.os == other.os && self.architecture == other.architecture && is_variant
    }
}

impl FromStr for Platform {
    type Err = NoPlatform;

    fn from_str(text: &str) -> Result<Self, NoPlatform> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_word = |part: &&str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let (os, architecture, variant) = match *parts.as_slice() {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return Err(NoPlatform),
        };
        if !parts.iter().all(is_word) {
            return Err(NoPlatform);
        }
        Ok(Self {
            os: os.to_string(),
            architecture: architecture.to_string(),
            variant: variant.map(str::to_string),
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn platforms_are_two_or_three_words() {
        for text in ["linux/amd64", "linux/arm/v7"] {
            assert_eq!(text.parse::<Platform>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "linux",
            "linux/",
            "/amd64",
            "linux/arm/v7/x",
            "linux/am d64",
        ] {
            assert_eq!(text.parse::<Platform>(), Err(NoPlatform), "{text}");
        }
    }
}
