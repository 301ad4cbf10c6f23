//! The JSON that commands print, as docs/json.md describes it. Fields are added, never renamed.

use forerun::vfs::{FileType, Metadata};
use forerun_io::StatsSnapshot;
use serde_json::{Map, Value, json};

use crate::error::Failure;

/// Puts bytes that are usually text into an object, as the string `key`. If they are not UTF-8, the
/// string has U+FFFD for invalid bytes, and `key_hex` has the exact bytes.
pub fn put_bytes(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let exact = matches!(text, std::borrow::Cow::Borrowed(_));
    object.insert(key.to_string(), Value::String(text.into_owned()));
    if !exact {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        object.insert(format!("{key}_hex"), Value::String(hex));
    }
}

pub fn put_metadata(object: &mut Map<String, Value>, metadata: &Metadata) {
    let mode = format!("{:04o}", metadata.mode);
    object.insert("type".into(), metadata.kind.name().into());
    object.insert("mode".into(), mode.into());
    object.insert("nlink".into(), metadata.nlink.into());
    object.insert("uid".into(), metadata.uid.into());
    object.insert("gid".into(), metadata.gid.into());
    object.insert("size".into(), metadata.size.into());
    object.insert("mtime".into(), metadata.mtime.seconds.into());
    object.insert(
        "mtime_nanoseconds".into(),
        metadata.mtime.nanoseconds.into(),
    );
    if matches!(metadata.kind, FileType::BlockDevice | FileType::CharDevice) {
        object.insert("major".into(), metadata.device.major.into());
        object.insert("minor".into(), metadata.device.minor.into());
    }
}

/// Converts all counters, including zeros.
pub fn stats(stats: &StatsSnapshot) -> Value {
    let counters: Map<_, _> = stats
        .iter()
        .map(|(counter, value)| (counter.name().to_string(), value.into()))
        .collect();
    json!({ "stats": counters })
}

pub fn failure(failure: &Failure) -> Value {
    let mut fields = failure_fields(failure);
    if let Some(fields) = fields.as_object_mut() {
        fields.insert("exit_code".into(), failure.exit.code().into());
    }
    json!({ "error": fields })
}

/// Converts a failure that is one of several.
pub fn failure_fields(failure: &Failure) -> Value {
    let mut object = Map::new();
    object.insert("kind".into(), failure.kind.into());
    object.insert("subject".into(), failure.subject.clone().into());
    match &failure.path {
        Some(path) => put_bytes(&mut object, "path", path),
        None => drop(object.insert("path".into(), Value::Null)),
    }
    object.insert("message".into(), failure.message.clone().into());
    object.insert("hint".into(), failure.hint.clone().into());
    object.into()
}

/// Returns a field of an object as text, or an empty text.
pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a field of an object as a number, or 0.
pub fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}
