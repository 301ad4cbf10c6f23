//! Figures in documents are those that were measured.

use std::path::Path;

use anyhow::{Context, Result};

use super::Violation;
use crate::figures::{Block, replaced};
use crate::{report, scaling};

/// Finds the documents that show other figures than those kept in docs/figures.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
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
