//! The tree as the rules see it: text files, and the crates with the contents of their manifests.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::{Captures, Regex};
use serde_json::Value;

use crate::process;

pub struct SourceFile {
    /// Path below the root, with slashes.
    pub path: String,
    /// Bytes that are not UTF-8 appear as replacement characters.
    pub text: String,
}

pub struct Package {
    pub name: String,
    /// Its directory below the root.
    pub dir: String,
    pub dependencies: Vec<Dependency>,
}

pub struct Dependency {
    pub name: String,
    /// Whether only tests and benches use it.
    pub dev: bool,
    /// Its directory below the root; `None` if it comes from a registry.
    pub dir: Option<String>,
}

impl SourceFile {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether it is a separate test or bench, and not part of what is built for users.
    pub fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
    }

    /// Returns the text before the module of unit tests.
    pub fn shipped(&self) -> &str {
        static TESTS: LazyLock<Regex> =
            LazyLock::new(|| pattern(r"(?m)^#\[cfg\(test\)\]\n(?:#\[.*\n)*mod [[:word:]]+ \{$"));
        let end = TESTS.find(&self.text).map(|found| found.start());
        end.map_or(&self.text, |end| &self.text[..end])
    }

    /// Returns a violation at a byte of the text.
    pub fn violation(&self, at: usize, message: impl AsRef<str>) -> String {
        let line = self.text[..at].matches('\n').count() + 1;
        format!("{}:{line}: {}", self.path, message.as_ref())
    }
}

#[allow(clippy::expect_used)]
pub fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of this program compiles")
}

/// Comments, strings and characters. Lifetimes have no closing quote.
const COMMENT: &str = r"//[^\n]*|(?s:/\*.*?\*/)";
const LITERAL: &str = r####"(?s:r###".*?"###|r##".*?"##|r#".*?"#|(?-u:\b)b?r".*?"|"(?:\\.|[^"\\])*")|'(?:\\'|\\[^']*|[^\\'])'"####;

/// Blanks out comments and literals. All other bytes keep their positions.
pub fn code_only(text: &str) -> Cow<'_, str> {
    static BOTH: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("({COMMENT})|{LITERAL}")));
    BOTH.replace_all(text, |found: &Captures<'_>| blank(&found[0]))
}

pub fn without_comments(text: &str) -> Cow<'_, str> {
    static BOTH: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("({COMMENT})|{LITERAL}")));
    BOTH.replace_all(text, |found: &Captures<'_>| match found.get(1) {
        Some(comment) => blank(comment.as_str()),
        None => found[0].to_string(),
    })
}

fn blank(text: &str) -> String {
    let bytes = text.bytes();
    bytes
        .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
        .collect()
}

/// Reads all text files that git tracks, or would track when they are added. A file with a NUL byte
/// is not text.
pub fn files(root: &Path) -> Result<Vec<SourceFile>> {
    let mut git = Command::new("git");
    git.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let mut files = Vec::new();
    for path in process::output(&mut git)?.split_terminator('\0') {
        let host = root.join(path);
        // A deleted file that is still in the index, and a link, have no text of their own.
        if !host
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file())
        {
            continue;
        }
        let bytes = fs::read(&host).with_context(|| path.to_string())?;
        if !bytes.contains(&0) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            files.push(SourceFile {
                path: path.to_string(),
                text,
            });
        }
    }
    Ok(files)
}

/// Reads the manifests of the workspace at `root`, and of the separate workspace `fuzz/`.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        if !root.join(manifest).exists() {
            continue;
        }
        let mut cargo = process::cargo(root);
        cargo.args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ]);
        let json = process::output(cargo.args(["--manifest-path", manifest]))?;
        let metadata: Value = serde_json::from_str(&json).context("output of cargo metadata")?;
        let list = metadata["packages"].as_array().into_iter().flatten();
        packages.extend(list.map(|package| parse(root, package)));
    }
    Ok(packages)
}

fn parse(root: &Path, package: &Value) -> Package {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let below = |path: &Path| {
        let path = path.strip_prefix(root).unwrap_or(path);
        path.to_string_lossy().into_owned()
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let dependencies = dependencies.map(|dependency| Dependency {
        name: text(&dependency["name"]),
        dev: dependency["kind"] == "dev",
        dir: dependency["path"]
            .as_str()
            .map(|path| below(Path::new(path))),
    });
    let manifest = text(&package["manifest_path"]);
    Package {
        name: text(&package["name"]),
        dir: Path::new(&manifest).parent().map(below).unwrap_or_default(),
        dependencies: dependencies.collect(),
    }
}

#[cfg(test)]
impl SourceFile {
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_string(),
            text: text.to_string(),
        }
    }
}

#[cfg(test)]
impl Package {
    /// Creates a crate in the directory `dir`. Dependencies without a slash come from a registry;
    /// `dev:` before a name marks a dev-dependency.
    pub fn new(dir: &str, dependencies: &[&str]) -> Self {
        let name = |dir: &str| match dir.rsplit_once('/') {
            Some((_, "forerun")) => "forerun".to_string(),
            Some((_, last)) => format!("forerun-{last}"),
            None => dir.to_string(),
        };
        let dependency = |text: &&str| {
            let dir = text.trim_start_matches("dev:");
            Dependency {
                name: name(dir),
                dev: text.starts_with("dev:"),
                dir: dir.contains('/').then(|| dir.to_string()),
            }
        };
        Self {
            name: name(dir),
            dir: dir.to_string(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        for (text, code) in [
            ("use a; // b\nc", "use a;     \nc"),
            ("a /* b */ c", "a         c"),
            ("f(\"a \\\" b\", c)", "f(        , c)"),
            ("r\"a\\\" b", "      b"),
            ("r#\"a\"b\"# c", "         c"),
            ("br##\"\"#\"## c", "b          c"),
            ("'a' 'b 'c'", "    'b    "),
            ("'\\'' x '\\\\' y", "     x      y"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("\"// a\" b", "       b"),
        ] {
            assert_eq!(code_only(text), code, "{text:?}");
        }
        assert_eq!(without_comments("a \"// b\" // c"), "a \"// b\"     ");
        assert_eq!(
            without_comments("'/' /* 'd' */ \"e\""),
            "'/'           \"e\""
        );
    }

    #[test]
    fn unit_tests_are_not_shipped() {
        let module = "#[cfg(test)]\nmod tests {\n}\n";
        for (text, shipped) in [
            (format!("fn f() {{}}\n\n{module}"), "fn f() {}\n\n"),
            (
                "#[cfg(test)]\nmod tests;\n".to_string(),
                "#[cfg(test)]\nmod tests;\n",
            ),
        ] {
            assert_eq!(SourceFile::new("a.rs", &text).shipped(), shipped);
        }
    }
}
