//! Comments and documents name their actors, and doc comments of functions begin with a verb.
//!
//! The rule finds three constructions: a doc comment that begins with a question word, a pronoun for an
//! actor without a name ([`PRONOUNS`]), and a sentence whose subject is "who". [`ALLOWED`] counts the
//! lines of each folder that still have one; the numbers may only fall, and the rule asks to lower them.

use std::collections::BTreeMap;

use super::Violation;
use super::rooms::Room;
use super::sources::SourceFile;

/// Lines that still break the rule, for each folder of a crate and each document.
const ALLOWED: &[(&str, usize)] = &[
    ("crates/engine", 90),
    ("crates/formats/exfat", 93),
    ("crates/front/cli", 155),
    ("crates/front/fuse", 155),
    ("crates/front/kernel", 59),
    ("crates/store/cache", 85),
    ("crates/store/remote", 140),
    ("crates/test/kit", 111),
    ("xtask", 104),
];

/// First words of a doc comment that name neither an action nor a thing.
const OPENINGS: [&str; 4] = ["Who", "Whoever", "What", "Those"];
/// The same for functions. A field may be "Whether ...".
const OF_FUNCTIONS: &str = "Whether";
/// Pronouns for actors that have a name.
const PRONOUNS: [&str; 5] = ["anybody", "everybody", "nobody", "somebody", "whoever"];
/// Words after which "who" is a subject without a noun before it.
const BEFORE_WHO: [&str; 20] = [
    "and", "as", "because", "but", "by", "for", "from", "if", "not", "of", "or", "since", "so",
    "than", "that", "to", "when", "where", "whether", "with",
];

/// Returns a violation for each folder with more, or fewer, such lines than are allowed.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    compare(&found(files), ALLOWED)
}

/// Returns the lines that break the rule, by folder of a crate or path of a document.
fn found(files: &[SourceFile]) -> BTreeMap<String, Vec<(String, usize)>> {
    let mut found: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for file in files {
        let place = match Room::of(&file.path) {
            _ if file.path.ends_with(".md") => file.path.clone(),
            Some((_, dir)) if file.is_rust() => dir.to_string(),
            _ => continue,
        };
        let lines = match file.is_rust() {
            true => in_comments(&file.text),
            false => in_prose(&file.text),
        };
        let lines = lines.into_iter().map(|line| (file.path.clone(), line));
        found.entry(place).or_default().extend(lines);
    }
    found
}

fn compare(
    found: &BTreeMap<String, Vec<(String, usize)>>,
    allowed: &[(&str, usize)],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (place, lines) in found {
        let allowed = allowed.iter().find(|(dir, _)| dir == place);
        let allowed = allowed.map_or(0, |&(_, count)| count);
        let mut report = |(place, line): (String, usize), message: String| {
            violations.push(Violation {
                place,
                line,
                message,
            });
        };
        if lines.len() > allowed {
            let count = lines.len();
            for line in lines {
                let message = format!(
                    "name the actor and begin with a verb (style of CONTRIBUTING.md); {place} has \
                     {count} such lines, {allowed} are allowed"
                );
                report(line.clone(), message);
            }
        } else if lines.len() < allowed {
            let count = lines.len();
            let message =
                format!("lower the {allowed} of {place} in xtask/src/tidy/language.rs to {count}");
            report((place.clone(), 0), message);
        }
    }
    violations
}

/// Returns the numbers of the lines of comments that break the rule.
fn in_comments(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = "";
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let (marker, comment) = comment(line);
        let opens = marker.len() == 3 && before != marker;
        let first = words(comment).next().unwrap_or_default();
        let is_bad = OPENINGS.contains(&first)
            || first == OF_FUNCTIONS && is_of_function(lines.get(index..).unwrap_or_default());
        if !marker.is_empty() && (opens && is_bad || is_vague(comment)) {
            found.push(index + 1);
        }
        before = marker;
    }
    found
}

/// Returns the numbers of the lines of a document that break the rule.
fn in_prose(text: &str) -> Vec<usize> {
    let lines = text.lines().enumerate();
    let vague = lines.filter(|(_, line)| is_vague(line));
    vague.map(|(index, _)| index + 1).collect()
}

/// Returns whether a doc comment, which begins with the first line, is that of a function.
fn is_of_function(lines: &[&str]) -> bool {
    let mut code = lines.iter().map(|line| line.trim_start());
    let item = code.find(|line| !line.starts_with("//") && !line.starts_with("#["));
    item.is_some_and(|item| words(item).take(4).any(|word| word == "fn"))
}

/// Returns the marker of a line that is a comment, and its text; two empty strings for any other line.
fn comment(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    for marker in ["///", "//!", "//"] {
        if let Some(text) = line.strip_prefix(marker) {
            return (&line[..marker.len()], text);
        }
    }
    ("", "")
}

/// Returns whether a line has a pronoun without a name, or a sentence whose subject is "who".
fn is_vague(line: &str) -> bool {
    let mut before = "";
    let mut ends_sentence = true;
    for word in line.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let lower = bare.trim_end_matches("'s").to_ascii_lowercase();
        let is_subject = match bare {
            "Who" => ends_sentence,
            "who" => BEFORE_WHO.contains(&before),
            _ => false,
        };
        if is_subject || PRONOUNS.contains(&lower.as_str()) {
            return true;
        }
        ends_sentence = word.ends_with(['.', ':', ';', '?', '!']) || bare.is_empty();
        before = bare;
    }
    false
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructions() {
        for (text, sound) in [
            ("/// Returns what the driver knows.\n", true),
            ("/// A user who may only read.\n", true),
            (
                "/// The reader waits.\n/// What it waits for comes.\n",
                true,
            ),
            ("let who = nobody;\n", true),
            ("// Whether this helps was measured.\n", true),
            ("/// What is read.\n", false),
            ("/// Whether it is.\npub done: bool,\n", true),
            (
                "/// Whether it is.\n#[must_use]\npub const fn is(&self) -> bool {\n",
                false,
            ),
            ("//! Those that wait.\n", false),
            ("// Memory that nobody uses.\n", false),
            ("// Who waits is woken.\n", false),
            ("// The lock is released. Who waits is woken.\n", false),
            ("// Room for who waits.\n", false),
            ("// Memory that is nobody's.\n", false),
        ] {
            assert_eq!(in_comments(text).is_empty(), sound, "{text}");
        }
        assert_eq!(in_prose("What is it?\n| who | how |\n"), [0; 0]);
        assert_eq!(in_prose("One line.\nWhoever reads it.\n"), [2]);
    }

    #[test]
    fn counts_may_only_fall() {
        let file = SourceFile::new("crates/io/src/a.rs", "//! What.\n\n// Nobody.\n");
        let found = found(&[file]);
        for (allowed, violations) in [(2, 0), (1, 2), (0, 2), (3, 1)] {
            let told = compare(&found, &[("crates/io", allowed)]);
            assert_eq!(told.len(), violations, "{allowed}: {told:?}");
        }
    }
}
