//! Links between the Markdown files of the tree: the file is there, and the heading in it.

use std::collections::BTreeMap;

use super::Violation;
use super::sources::SourceFile;

/// Finds all relative links that lead nowhere. Links to other servers are not followed.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let by_path: BTreeMap<&str, &SourceFile> = files
        .iter()
        .map(|file| (file.path.as_str(), file))
        .collect();
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            if let Err(message) = resolve(&by_path, &file.path, &target) {
                violations.push(Violation {
                    place: file.path.clone(),
                    line,
                    message,
                });
            }
        }
    }
    violations
}

fn resolve(files: &BTreeMap<&str, &SourceFile>, from: &str, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => from.to_string(),
        path => join(from, path).ok_or_else(|| format!("link out of the tree: {target}"))?,
    };
    let dir = format!("{path}/");
    let Some(file) = files.get(path.as_str()) else {
        return if path.is_empty() || files.keys().any(|file| file.starts_with(&dir)) {
            Ok(())
        } else {
            Err(format!("dead link: {target}"))
        };
    };
    let is_markdown = path.ends_with(".md");
    if is_markdown && !anchor.is_empty() && !headings(&file.text).any(|slug| slug == anchor) {
        return Err(format!("dead link: {target}: no such heading"));
    }
    Ok(())
}

/// Resolves `to` as seen from the file `from`; `None` above the root.
fn join(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = match to.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Finds the targets of `[text](target)` and `[name]: target`, with their lines, code aside.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (index, line) in prose(text) {
        let line = without_code_spans(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let (target, after) = after.split_once(')').unwrap_or((after, ""));
            // What follows a space is the title.
            links.extend(
                target
                    .split_whitespace()
                    .next()
                    .map(|target| (index, target.into())),
            );
            rest = after;
        }
        if let Some((name, target)) = line.trim_start().split_once("]: ")
            && name.starts_with('[')
        {
            links.extend(
                target
                    .split_whitespace()
                    .next()
                    .map(|target| (index, target.into())),
            );
        }
    }
    links
}

/// Converts headings to anchors as hosts do: lower case, spaces to dashes, other signs dropped.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            return None;
        }
        let slug = title.trim().to_lowercase();
        let kept = slug
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
    })
}

/// Returns the lines outside fenced code, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
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
