//! Differences as lines and as JSON.

use forerun::vfs::Timestamp;
use forerun_export::{Change, DiffReport, Difference};
use serde_json::{Map, Value, json};

use crate::advice::absolute;
use crate::error::{Failure, Result};
use crate::escape::escape;
use crate::json::{failure_fields, put_bytes};
use crate::output::{JsonArray, Output};

/// Bytes of an attribute's value that a line shows.
const VALUE: usize = 40;

/// Prints each difference on a line, first those that may give somebody more rights. With `brief`, prints
/// each path.
pub fn lines(out: &mut Output, found: &[Difference], brief: bool) -> Result<()> {
    let told = || told(found, brief);
    let is_first = |it: &&Difference| !brief && it.change.privilege().is_some();
    let rest = told().filter(|it| !is_first(it));
    for difference in told().filter(is_first).chain(rest) {
        let (word, how) = match &difference.change {
            Change::Added(kind, _) => ("added", format!(": {}", kind.name())),
            Change::Removed(kind) => ("removed", format!(": {}", kind.name())),
            change => ("changed", format!(": {}", how(change))),
        };
        let privilege = difference.change.privilege();
        let how = match privilege.filter(|privilege| !how.contains(privilege)) {
            Some(privilege) => format!("{how} ({privilege})"),
            None => how,
        };
        out.text(word)?;
        out.text(": ")?;
        out.name(&absolute(&difference.path))?;
        out.line(if brief { "" } else { &how })?;
    }
    Ok(())
}

pub fn json(
    out: &mut Output,
    (left, right): &(String, String),
    report: &DiffReport,
    found: &[Difference],
    brief: bool,
    failures: &[Failure],
) -> Result<()> {
    let head = json!({
        "left": left,
        "right": right,
        "same": report.differences == 0 && failures.is_empty(),
        "compared": report.compared,
        "bytes": report.bytes,
        "without_owners": report.without_owners,
        "without_times": report.without_times,
        "failures": failures.iter().map(failure_fields).collect::<Vec<_>>(),
    });
    let head = head.to_string();
    // The list follows as the last field, one element per line.
    out.text(head.strip_suffix('}').unwrap_or(&head))?;
    out.text(",\"differences\":")?;
    let mut array = JsonArray::default();
    for difference in told(found, brief) {
        array.push(out, &fields(difference, brief))?;
    }
    array.close(out)?;
    out.text("}\n")
}

/// Selects all differences or, with `brief`, the first one of each path.
fn told(found: &[Difference], brief: bool) -> impl Iterator<Item = &Difference> {
    let mut last: Option<&[u8]> = None;
    found.iter().filter(move |difference| {
        let again = last == Some(difference.path.as_slice());
        last = Some(&difference.path);
        !(brief && again)
    })
}

fn how(change: &Change) -> String {
    let quoted = |bytes: &[u8]| format!("\"{}\"", escape(bytes));
    match change {
        Change::Added(kind, _) | Change::Removed(kind) => kind.name().to_string(),
        Change::Kind(left, right) => format!("type {} -> {}", left.name(), right.name()),
        Change::Mode(left, right) => format!("mode {left:04o} -> {right:04o}"),
        Change::Owner((uid, gid), (new_uid, new_gid)) => {
            format!("owner {uid}:{gid} -> {new_uid}:{new_gid}")
        }
        Change::Mtime(left, right) => format!("mtime {} -> {}", time(*left), time(*right)),
        Change::Size(left, right) => format!("size {left} -> {right}"),
        Change::Content(at) => format!("content from byte {at} on"),
        Change::Target(left, right) => format!("target {} -> {}", quoted(left), quoted(right)),
        Change::Device(left, right) => format!(
            "device {}:{} -> {}:{}",
            left.major, left.minor, right.major, right.minor
        ),
        Change::Link(left, right) => {
            let link = |first: &Option<Vec<u8>>| match first {
                Some(first) => format!("with {}", escape(&absolute(first))),
                None => "none".to_string(),
            };
            format!("hard link {} -> {}", link(left), link(right))
        }
        Change::Xattr(name, left, right) => {
            let value = |value: &Option<Vec<u8>>| match value {
                Some(value) if value.len() > VALUE => {
                    let start = value.get(..VALUE).unwrap_or_default();
                    format!("{}... ({} bytes)", quoted(start), value.len())
                }
                Some(value) => quoted(value),
                None => "none".to_string(),
            };
            format!("xattr {} {} -> {}", escape(name), value(left), value(right))
        }
        // The enum may grow; only the name of a new kind is known here.
        change => change.name().to_string(),
    }
}

/// Formats a time as a date in UTC, which `date -d` takes.
fn time(time: Timestamp) -> String {
    let nanoseconds = i32::try_from(time.nanoseconds).unwrap_or(0);
    match jiff::Timestamp::new(time.seconds, nanoseconds) {
        Ok(date) => date.to_string(),
        // Beyond the year 9999.
        Err(_) => format!("@{}", time.seconds),
    }
}

fn fields(difference: &Difference, brief: bool) -> Value {
    let mut object = Map::new();
    put_bytes(&mut object, "path", &absolute(&difference.path));
    let change = match (&difference.change, brief) {
        (Change::Added(..) | Change::Removed(_), _) | (_, false) => difference.change.name(),
        (_, true) => "changed",
    };
    object.insert("change".into(), change.into());
    if !brief {
        values(&mut object, &difference.change);
        if let Some(privilege) = difference.change.privilege() {
            object.insert("privilege".into(), privilege.into());
        }
    }
    Value::Object(object)
}

fn values(object: &mut Map<String, Value>, change: &Change) {
    let mut put = |left: Value, right: Value| {
        object.insert("left".into(), left);
        object.insert("right".into(), right);
    };
    let mtime =
        |time: &Timestamp| json!({"mtime": time.seconds, "mtime_nanoseconds": time.nanoseconds});
    match change {
        Change::Added(kind, _) => put(Value::Null, kind.name().into()),
        Change::Removed(kind) => put(kind.name().into(), Value::Null),
        Change::Kind(left, right) => put(left.name().into(), right.name().into()),
        Change::Mode(left, right) => {
            put(format!("{left:04o}").into(), format!("{right:04o}").into())
        }
        Change::Owner(left, right) => put(
            json!({"uid": left.0, "gid": left.1}),
            json!({"uid": right.0, "gid": right.1}),
        ),
        Change::Mtime(left, right) => put(mtime(left), mtime(right)),
        Change::Size(left, right) => put((*left).into(), (*right).into()),
        Change::Content(at) => {
            object.insert("offset".into(), (*at).into());
        }
        Change::Target(left, right) => {
            put_bytes(object, "left", left);
            put_bytes(object, "right", right);
        }
        Change::Device(left, right) => put(
            json!({"major": left.major, "minor": left.minor}),
            json!({"major": right.major, "minor": right.minor}),
        ),
        Change::Link(left, right) => {
            optional(object, "left", left.as_deref().map(absolute).as_deref());
            optional(object, "right", right.as_deref().map(absolute).as_deref());
        }
        Change::Xattr(name, left, right) => {
            put_bytes(object, "name", name);
            optional(object, "left", left.as_deref());
            optional(object, "right", right.as_deref());
        }
        _ => {}
    }
}

fn optional(object: &mut Map<String, Value>, key: &str, value: Option<&[u8]>) {
    match value {
        Some(value) => put_bytes(object, key, value),
        None => drop(object.insert(key.into(), Value::Null)),
    }
}
