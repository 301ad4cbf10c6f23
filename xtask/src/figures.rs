//! Figures in documents: kept as JSON in docs/figures, and shown in blocks that are made from it.
//!
//! A block stands between two comments. `cargo xtask tidy` makes each anew and compares it, so that no
//! document shows a figure that was not measured.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Where the figures are kept.
pub const DIR: &str = "docs/figures";
/// How the comment before a block begins.
pub const BEGIN: &str = "<!-- figures: ";
/// The comment after a block.
pub const END: &str = "<!-- end of figures -->";

/// A part of a document that is made from figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The document, below the root.
    pub document: &'static str,
    /// The name of the block in it.
    pub name: String,
    /// The text of the block.
    pub text: String,
}

/// Writes blocks to their documents.
pub fn write_blocks(root: &Path, blocks: &[Block]) -> Result<()> {
    let mut texts = BTreeMap::new();
    for block in blocks {
        let path = root.join(block.document);
        if !texts.contains_key(&path) {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            texts.insert(path.clone(), text);
        }
        if let Some(text) = texts.get_mut(&path) {
            *text = replaced(text, block)
                .with_context(|| format!("{}: no block {}", block.document, block.name))?;
        }
    }
    for (path, text) in texts {
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the text with the block in place of the one before; nothing where it has no such block.
pub fn replaced(text: &str, block: &Block) -> Option<String> {
    let begin = format!("{BEGIN}{} -->", block.name);
    let (head, rest) = text.split_once(&begin)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!(
        "{head}{begin}\n\n{}\n\n{END}{tail}",
        block.text.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_and_nothing_else() {
        let block = Block {
            document: "x.md",
            name: "one".to_string(),
            text: "| 2 |\n".to_string(),
        };
        let text = format!(
            "a\n<!-- figures: one -->\n\n| 1 |\n\n{END}\nb\n<!-- figures: two -->\n{END}\n"
        );
        let new = replaced(&text, &block).unwrap();
        assert_eq!(new, text.replace("| 1 |", "| 2 |"));
        assert_eq!(replaced(&new, &block).as_deref(), Some(new.as_str()));
        assert_eq!(replaced("nothing", &block), None);
    }
}
