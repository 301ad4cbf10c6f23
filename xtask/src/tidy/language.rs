//! Comments and documents name their actors, and doc comments of functions begin with a verb.
//!
//! The rule finds four constructions: a doc comment that begins with a question word, the doc comment of
//! a function that does not begin with a verb ("Returns"), a pronoun for an actor without a name, and a
//! relative pronoun as the subject of a sentence. It has no exceptions.

use super::Violation;
use super::sources::SourceFile;

/// First words of a doc comment that name neither an action nor a thing.
const OPENINGS: [&str; 4] = ["Who", "Whoever", "What", "Those"];
/// Words that end in an "s" as verbs do, and are none.
const NO_VERBS: [&str; 10] = [
    "As", "Blocks", "Bytes", "Extents", "Files", "Is", "Its", "Names", "This", "Was",
];
/// Words before the `fn` of a function.
const MODIFIERS: [&str; 9] = [
    "async", "C", "const", "crate", "default", "extern", "in", "pub", "super",
];
/// Pronouns for actors that have a name.
const PRONOUNS: [&str; 5] = ["anybody", "everybody", "nobody", "somebody", "whoever"];
/// Words after which "who" is a subject without a noun before it.
const BEFORE_WHO: [&str; 20] = [
    "and", "as", "because", "but", "by", "for", "from", "if", "not", "of", "or", "since", "so",
    "than", "that", "to", "when", "where", "whether", "with",
];

/// Returns a violation for each such line.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        let lines = match file.is_rust() {
            true => in_comments(&file.text),
            false if file.path.ends_with(".md") => in_prose(&file.text),
            false => continue,
        };
        violations.extend(lines.into_iter().map(|line| Violation {
            place: file.path.clone(),
            line,
            message: "name the actor and begin with a verb (style of CONTRIBUTING.md)".to_string(),
        }));
    }
    violations
}

/// Returns the numbers of the lines of comments that break the rule.
fn in_comments(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = "";
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        // The doc comment goes on after text from another file.
        if is_included(line) {
            continue;
        }
        let (marker, comment) = comment(line);
        let opens = marker.len() == 3 && before != marker;
        let first = words(comment).next().unwrap_or_default();
        let is_bad = OPENINGS.contains(&first)
            || !is_verb(first) && is_of_function(lines.get(index..).unwrap_or_default());
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

/// Returns whether a word may be a verb in the third person.
fn is_verb(word: &str) -> bool {
    word.ends_with('s') && !NO_VERBS.contains(&word)
}

/// Returns whether a doc comment, which begins with the first line, is that of a function.
fn is_of_function(lines: &[&str]) -> bool {
    let mut code = lines.iter().map(|line| line.trim_start());
    let item = code.find(|line| !line.starts_with("//") && !line.starts_with("#["));
    let first = item.and_then(|item| words(item).find(|word| !MODIFIERS.contains(word)));
    first == Some("fn")
}

/// Returns whether a line takes text of a doc comment from another file.
fn is_included(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[doc = include_str!") || line.starts_with("#![doc = include_str!")
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
            ("/// Reads a block.\npub fn read() {}\n", true),
            ("/// The block.\npub fn read() {}\n", false),
            ("/// The way of a word.\nFlag(fn(u8)),\n", true),
            ("/// As `read`, later.\nfn read() {}\n", false),
            (
                "/// Reads it.\n#[doc = include_str!(\"a.md\")]\n/// let a = 1;\nfn read() {}\n",
                true,
            ),
            (
                "#[doc = include_str!(\"a.md\")]\n/// The way.\nfn read() {}\n",
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
    fn comments_and_documents_are_read() {
        let files = [
            SourceFile::new("crates/io/src/a.rs", "//! What.\n\n// Nobody.\n"),
            SourceFile::new("docs/a.md", "Nobody.\n"),
            SourceFile::new("deny.toml", "# Nobody.\n"),
        ];
        let found: Vec<_> = check(&files)
            .into_iter()
            .map(|found| (found.place, found.line))
            .collect();
        let expected = [
            ("crates/io/src/a.rs", 1),
            ("crates/io/src/a.rs", 3),
            ("docs/a.md", 1),
        ];
        assert_eq!(
            found,
            expected.map(|(place, line)| (place.to_string(), line))
        );
    }
}
