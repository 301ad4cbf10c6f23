//! Figures in documents are those that were measured.

use std::path::Path;

use anyhow::{Context, Result};

use super::Violation;
use crate::figures::{BEGIN, Block, END, replaced};
use crate::{report, scaling};

/// The documents whose tables of figures a command has written.
const WRITTEN: [&str; 2] = ["README.md", "docs/benchmarks.md"];

/// Finds the documents that show other figures than those kept in docs/figures, or figures that were typed in.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for document in WRITTEN {
        let path = root.join(document);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        violations.extend(typed_in(document, &text));
    }
    for block in blocks(root)? {
        let path = root.join(block.document);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        violations.extend(compare(&text, &block));
    }
    Ok(violations)
}

/// Returns the blocks of all documents.
fn blocks(root: &Path) -> Result<Vec<Block>> {
    let mut blocks = scaling::blocks(root)?;
    blocks.extend(report::blocks(root)?);
    Ok(blocks)
}

/// Finds rows of tables, outside of the blocks that are made from figures, with a number that was measured, and
/// sentences with a ratio.
fn typed_in(document: &str, text: &str) -> Vec<Violation> {
    let (mut violations, mut in_block) = (Vec::new(), false);
    for (line, number) in text.lines().zip(1..) {
        if line.starts_with(BEGIN) {
            in_block = true;
        }
        let is_figure = match line.starts_with('|') {
            true => decimals(line).next().is_some(),
            false => decimals(line).any(|whole| whole == "0"),
        };
        if is_figure && !in_block {
            violations.push(Violation {
                place: document.to_string(),
                line: number,
                message: "a figure that no command wrote: measure it with `cargo xtask report \
                          --update`, or tell it in docs/decisions with date and commit"
                    .to_string(),
            });
        }
        if line.starts_with(END) {
            in_block = false;
        }
    }
    violations
}

/// Returns the digits before each decimal point of a line. Parts of versions, as `1.2.3`, are none.
fn decimals(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|char: char| !char.is_ascii_digit() && char != '.');
    words.filter_map(|word| {
        let (whole, part) = word.trim_matches('.').split_once('.')?;
        let is_number = !whole.is_empty() && !part.contains('.');
        is_number.then_some(whole)
    })
}

fn compare(text: &str, block: &Block) -> Option<Violation> {
    let message = match replaced(text, block) {
        None => format!("no block of figures named {:?}", block.name),
        Some(new) if new != text => format!(
            "the figures {:?} are not those of docs/figures: run the command that measures them \
             with --update, which writes both",
            block.name
        ),
        Some(_) => return None,
    };
    Some(Violation {
        place: block.document.to_string(),
        line: 0,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_were_typed_in_are_found() {
        let lines = |text: &str| {
            let found = typed_in("x.md", text);
            found.into_iter().map(|of| of.line).collect::<Vec<_>>()
        };
        let block = "<!-- figures: one -->\n\n| a | 0.5 |\n\n<!-- end of figures -->\n";
        assert_eq!(lines(block), Vec::<usize>::new());
        assert_eq!(
            lines(&format!("{block}| a | 0.51-0.6 |\nIt takes 0.6 of that.\n")),
            [6, 7]
        );
        // Versions and whole numbers of things.
        assert_eq!(
            lines("Linux 6.18, Debian 12.\n| [cli](1.2.3.md) | 78,000 files |\n"),
            Vec::<usize>::new()
        );
    }

    #[test]
    fn another_figure_is_found() {
        let block = Block {
            document: "x.md",
            name: "one".to_string(),
            text: "| 0.5 |".to_string(),
        };
        let text = "<!-- figures: one -->\n\n| 0.5 |\n\n<!-- end of figures -->\n";
        assert_eq!(compare(text, &block), None);
        assert!(compare(&text.replace("0.5", "0.4"), &block).is_some());
        assert!(compare("", &block).is_some());
    }
}
