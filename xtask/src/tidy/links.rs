//! Links between the Markdown files of the tree: the file and the heading must exist.

use std::collections::BTreeMap;

use super::tree::{SourceFile, pattern};

/// Finds all broken relative links. Links to other servers are not followed.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    // `[text](target "title")`, and `[name]: target`.
    let links = pattern(r"(?m)\]\(([^)\s]+)|^\s*\[[^\]]*\]: (\S+)");
    let by_path = files.iter().map(|file| (&*file.path, file));
    let by_path: BTreeMap<&str, &SourceFile> = by_path.collect();
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for found in links.captures_iter(&prose(&file.text)) {
            let Some(target) = found.get(1).or(found.get(2)) else {
                continue;
            };
            if let Some(why) = leads_nowhere(&by_path, &file.path, target.as_str()) {
                violations
                    .push(file.violation(target.start(), format!("{why}: {}", target.as_str())));
            }
        }
    }
    violations
}

fn leads_nowhere(
    files: &BTreeMap<&str, &SourceFile>,
    from: &str,
    target: &str,
) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = join(from, path) else {
        return Some("link out of the tree");
    };
    let Some(file) = files.get(&*path) else {
        let is_folder = path.is_empty()
            || files
                .keys()
                .any(|file| file.starts_with(&format!("{path}/")));
        return (!is_folder).then_some("dead link");
    };
    let is_page = path.ends_with(".md") && !anchor.is_empty();
    (is_page && !headings(&file.text).any(|heading| heading == anchor)).then_some("no such heading")
}

/// Resolves `to` relative to the file `from`. Returns `None` above the root.
fn join(from: &str, to: &str) -> Option<String> {
    if to.is_empty() {
        return Some(from.to_string());
    }
    let mut parts: Vec<&str> = if to.starts_with('/') {
        Vec::new()
    } else {
        from.split('/').collect()
    };
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Converts headings to anchors as hosts do: lower case, dashes for spaces, other signs dropped.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let heading =
        |line: &&str| line.trim_start_matches('#').starts_with(' ') && line.starts_with('#');
    let titles = text
        .lines()
        .filter(heading)
        .map(|line| line.trim_start_matches('#').trim().to_lowercase());
    titles.map(|title| {
        let kept = title
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Blanks out code. The remaining text keeps its position.
fn prose(text: &str) -> String {
    let code = pattern(r"(?s)```.*?(```|\z)|`[^`\n]*`");
    let blanked = code.replace_all(text, |found: &regex::Captures<'_>| {
        found[0]
            .bytes()
            .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
            .collect::<String>()
    });
    blanked.into_owned()
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (text, sound) in [
            ("[a](b.md)", true),
            ("[a](docs/c.md#the-two-words) [x](./docs)", true),
            ("[a](https://example.org/none)", true),
            ("[a](#here-is-one)\n# Here is `one`", true),
            ("`[a](none.md)`\n```\n[a](none.md)\n```", true),
            ("[a]: b.md \"title\"", true),
            ("[a](none.md)", false),
            ("[a](b.md) and [a](none.md)", false),
            ("[a](b.md#none)", false),
            ("[a](#none)", false),
            ("[a](../b.md)", false),
            ("[a]: none.md", false),
            ("![figure](docs/none.svg)", false),
        ] {
            let files = [
                SourceFile::new("a.md", text),
                SourceFile::new("b.md", "[up](docs/c.md)"),
                SourceFile::new("docs/c.md", "## The two, words\n[up](../a.md)"),
            ];
            let found = check(&files);
            assert_eq!(found.is_empty(), sound, "{text}: {found:?}");
        }
    }
}
