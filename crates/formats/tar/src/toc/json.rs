//! Parses the JSON of a table, entry by entry.

use std::fmt;

use forerun_vfs::Result;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::entry::TocEntry;
use super::error::TocCheck;
use super::record::TocRecorder;

/// The supported version of the table.
const VERSION: u64 = 1;

/// Passes all entries of a table to `recorder`.
pub fn read(json: &[u8], recorder: &mut TocRecorder) -> Result<()> {
    let mut failed = Ok(());
    let table = Table {
        recorder,
        failed: &mut failed,
    };
    let mut parser = serde_json::Deserializer::from_slice(json);
    let parsed = parser.deserialize_map(table).and_then(|()| parser.end());
    failed?;
    let offset = recorder.offset();
    parsed.map_err(|error| {
        let reason = error.to_string();
        TocCheck::Json { reason }.at(offset)
    })
}

struct Table<'r> {
    recorder: &'r mut TocRecorder,
    failed: &'r mut Result<()>,
}

impl<'de> Visitor<'de> for Table<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of contents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let (mut has_version, mut has_entries) = (false, false);
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match &*key {
                "version" if has_version => return Err(A::Error::duplicate_field("version")),
                "version" => {
                    let version: u64 = map.next_value()?;
                    if version != VERSION {
                        let text = format!("version {version} of the table is not known");
                        return Err(A::Error::custom(text));
                    }
                    has_version = true;
                }
                "entries" if has_entries => return Err(A::Error::duplicate_field("entries")),
                "entries" => {
                    map.next_value_seed(Entries {
                        recorder: &mut *self.recorder,
                        failed: &mut *self.failed,
                    })?;
                    has_entries = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match (has_version, has_entries) {
            (true, true) => Ok(()),
            (false, _) => Err(A::Error::missing_field("version")),
            (_, false) => Err(A::Error::missing_field("entries")),
        }
    }
}

struct Entries<'r> {
    recorder: &'r mut TocRecorder,
    failed: &'r mut Result<()>,
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the entries of a table of contents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> std::result::Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<TocEntry>()? {
            if let Err(error) = self.recorder.add(entry) {
                *self.failed = Err(error);
                return Err(A::Error::custom("an entry is refused"));
            }
        }
        Ok(())
    }
}
