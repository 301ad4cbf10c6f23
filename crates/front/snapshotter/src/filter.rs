//! containerd's filters for listing snapshots.
//!
//! A filter consists of selectors separated by commas, all of which must match; a list of filters
//! matches if one filter does. A selector is a field path, optionally with an operator and a value:
//! `kind==committed`, `labels."a.b/c"~=^x`, `parent`. Values and fields can be quoted like Go
//! strings.

use regex::{Regex, RegexBuilder};

use crate::{Error, Result};

/// Maximum number of filters in a request, and maximum length of a filter.
const MAX_FILTERS: usize = 1024;
const MAX_TEXT: usize = 64 << 10;
const MAX_REGEX: usize = 1 << 20;

/// A list of filters, of which one must match.
#[derive(Clone, Debug, Default)]
pub struct Filters(Vec<Vec<Selector>>);

#[derive(Clone, Debug)]
struct Selector {
    path: Vec<String>,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Present,
    Equal(String),
    NotEqual(String),
    Matches(Regex),
}

impl Filters {
    pub fn parse(texts: &[String]) -> Result<Self> {
        if texts.len() > MAX_FILTERS || texts.iter().any(|text| text.len() > MAX_TEXT) {
            return Err(Error::Request("too many filters, or too long".to_owned()));
        }
        let filters = texts.iter().map(|text| {
            let bad = |reason: &str| Error::Request(format!("filter {text:?}: {reason}"));
            Parser { rest: text.trim() }.selectors().map_err(bad)
        });
        filters.collect::<Result<_>>().map(Self)
    }

    /// Returns whether a filter matches, or there are no filters. `field` returns the value at a
    /// field path.
    pub fn hold(&self, field: impl Fn(&[&str]) -> Option<String>) -> bool {
        let holds = |selector: &Selector| {
            let path: Vec<&str> = selector.path.iter().map(String::as_str).collect();
            let value = field(&path);
            match (&selector.test, value) {
                (Test::Present, value) => value.is_some(),
                (Test::Equal(wanted), value) => value.as_ref() == Some(wanted),
                (Test::NotEqual(wanted), value) => value.as_ref() != Some(wanted),
                (Test::Matches(regex), value) => value.is_some_and(|value| regex.is_match(&value)),
            }
        };
        let mut filters = self.0.iter();
        self.0.is_empty() || filters.any(|filter| filter.iter().all(holds))
    }
}

struct Parser<'a> {
    rest: &'a str,
}

type Parsed<T> = std::result::Result<T, &'static str>;

impl Parser<'_> {
    fn selectors(mut self) -> Parsed<Vec<Selector>> {
        let mut selectors = Vec::new();
        if self.rest.is_empty() {
            return Ok(selectors);
        }
        loop {
            selectors.push(self.selector()?);
            if self.rest.is_empty() {
                return Ok(selectors);
            }
            if !self.take(",") {
                return Err("a comma is needed between selectors");
            }
        }
    }

    fn selector(&mut self) -> Parsed<Selector> {
        let mut path = vec![self.field()?];
        while self.take(".") {
            path.push(self.field()?);
        }
        let test = if self.take("==") {
            Test::Equal(self.value()?)
        } else if self.take("!=") {
            Test::NotEqual(self.value()?)
        } else if self.take("~=") {
            let value = self.value()?;
            let regex = RegexBuilder::new(&value).size_limit(MAX_REGEX).build();
            Test::Matches(regex.map_err(|_| "not a regular expression, or too large")?)
        } else {
            Test::Present
        };
        Ok(Selector { path, test })
    }

    fn field(&mut self) -> Parsed<String> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let end = self.rest.find(|char| !is_part(char));
        let (field, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if field.is_empty() {
            return Err("a field is needed");
        }
        self.rest = rest;
        Ok(field.to_owned())
    }

    fn value(&mut self) -> Parsed<String> {
        if self.rest.starts_with('"') {
            return self.quoted();
        }
        let end = self
            .rest
            .find(|char: char| char == ',' || char.is_whitespace());
        let (value, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Ok(value.to_owned())
    }

    /// Parses a quoted string. Supports only the single-character escapes, in which JSON and Go
    /// agree.
    fn quoted(&mut self) -> Parsed<String> {
        let mut is_escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, char)| {
            let ends = *char == '"' && !is_escaped;
            is_escaped = *char == '\\' && !is_escaped;
            ends
        });
        let (end, _) = end.ok_or("a quote is not closed")?;
        let (text, rest) = self.rest.split_at(end + 1);
        self.rest = rest;
        serde_json::from_str(text).map_err(|_| "a quoted string has an unknown escape")
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hold(filters: &[&str]) -> Result<bool> {
        let filters: Vec<String> = filters.iter().map(|text| (*text).to_owned()).collect();
        let field = |path: &[&str]| {
            let value = match path {
                ["kind"] => "committed",
                ["parent"] => "",
                ["labels", "a.b/c"] => "sha256:1",
                ["labels", "q"] => "say \"x\"",
                _ => return None,
            };
            Some(value.to_owned())
        };
        Ok(Filters::parse(&filters)?.hold(field))
    }

    #[test]
    fn filters_select() {
        for (filters, expected) in [
            (&[][..], true),
            (&[""], true),
            (&["kind==committed"], true),
            (&["kind==active"], false),
            (&["kind==active", "kind!=active"], true),
            (&["labels.\"a.b/c\"==sha256:1,parent==\"\""], true),
            (&["labels.\"a.b/c\"==sha256:1,parent==\"x\""], false),
            (&["labels.\"a.b/c\"~=^sha"], true),
            (&["labels.\"a.b/c\"~=^x"], false),
            (&["labels.q==\"say \\\"x\\\"\""], true),
            (&["labels.none"], false),
            (&["labels.none!=x"], true),
            (&["labels.q,kind"], true),
        ] {
            assert_eq!(hold(filters).unwrap(), expected, "{filters:?}");
        }
    }

    #[test]
    fn filters_that_make_no_sense_are_refused() {
        for filter in [
            "==x",
            "a==b c",
            "a.",
            "\"a",
            "a~=(",
            "a==\"\\z\"",
            "a,",
            "\u{e9}",
        ] {
            assert!(hold(&[filter]).is_err(), "{filter}");
        }
        let large = format!("a~={}", "(a{1000}){1000}");
        assert!(hold(&[&large]).is_err());
    }
}
