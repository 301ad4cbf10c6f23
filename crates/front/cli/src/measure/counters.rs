//! The counters that forerun prints with `--stats`.

use std::collections::BTreeMap;

/// The counters by their names in `--stats`.
pub type Counters = BTreeMap<String, u64>;

/// Parses lines of a name and a number, which may have commas and a size behind it, as in
/// `source_bytes 4,096 (4.0 KiB)`. Other lines are left out.
pub fn parse(log: &str) -> Counters {
    log.lines().filter_map(counter).collect()
}

fn counter(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    let (name, value) = (words.next()?, words.next()?);
    let is_name = name
        .bytes()
        .all(|byte| byte == b'_' || byte.is_ascii_lowercase());
    let is_last = match words.next() {
        None => true,
        Some(size) => size.starts_with('(') && line.ends_with(')'),
    };
    let value = value.replace(',', "").parse().ok()?;
    (is_name && is_last).then(|| (name.to_string(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_among_other_lines() {
        let counters = parse(
            "mounted at 12\nsource_requests     17\nsource_bytes 1,234,567  (1.2 MiB)\nx y\n3 4\n\
             fuse_lookup 5\nwaited 3 times\n",
        );
        assert_eq!(counters.len(), 3, "{counters:?}");
        assert_eq!(counters["source_requests"], 17);
        assert_eq!(counters["source_bytes"], 1_234_567);
        assert_eq!(counters["fuse_lookup"], 5);
    }
}
