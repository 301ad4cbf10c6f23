//! The measured trees and images, which are made once and kept.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::{output, remove};

/// The program, and the directory of the inputs.
pub struct Inputs {
    pub program: PathBuf,
    pub dir: PathBuf,
    pub tree: PathBuf,
    pub big: PathBuf,
    pub scale: Scale,
}

pub struct Scale {
    pub files: u64,
    pub big: u64,
    /// Number of small files on an exFAT volume, and the length of the large one.
    pub exfat_files: u64,
    pub exfat_big: u64,
}

impl Inputs {
    /// Makes the tree and the large file if they are missing. Small ones for `quick` are in a
    /// separate directory.
    pub fn new(root: &Path, program: &Path, dir: &Path, quick: bool) -> Result<Self> {
        let scale = if quick {
            Scale {
                files: 300,
                big: 8_000_000,
                exfat_files: 100,
                exfat_big: 64 << 20,
            }
        } else {
            Scale {
                files: 78_000,
                big: 250_000_000,
                exfat_files: 10_000,
                exfat_big: 4 << 30,
            }
        };
        let dir = dir.join(if quick { "quick" } else { "full" });
        fs::create_dir_all(&dir)?;
        let dir = dir.canonicalize()?;
        let inputs = Self {
            program: program.to_path_buf(),
            tree: dir.join("tree"),
            big: dir.join("big"),
            dir,
            scale,
        };
        let text = corpus(root)?;
        once(&inputs.tree, |part| {
            populate(part, inputs.scale.files, &text)
        })?;
        once(&inputs.big, |part| {
            fs::create_dir(part)?;
            let mut out = BufWriter::new(File::create(part.join("file"))?);
            let mut rng = Rng(2);
            let mut left = usize::try_from(inputs.scale.big)?;
            while left > 0 {
                let contents = contents(&mut rng, &text, left.min(1 << 20));
                out.write_all(contents.as_bytes())?;
                left -= contents.len();
            }
            Ok(out.flush()?)
        })?;
        Ok(inputs)
    }

    pub fn forerun(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }

    /// Makes an image if it is missing. The words contain `{}` for its name.
    pub fn image(&self, name: &str, words: &[&str]) -> Result<PathBuf> {
        let image = self.dir.join(name);
        once(&image, |part| {
            let part = part.to_str().context("a name in UTF-8")?;
            let (program, words) = words.split_first().context("a program")?;
            let words = words.iter().map(|word| word.replace("{}", part));
            output(Command::new(program).args(words).current_dir(&self.dir)).map(drop)
        })?;
        Ok(image)
    }
}

/// Makes a file or directory under a temporary name first, so that it is complete or missing.
fn once(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    eprintln!("making {}", path.display());
    let part = path.with_extension("part");
    remove(&part)?;
    make(&part)?;
    Ok(fs::rename(&part, path)?)
}

/// Makes a tree like a kernel's sources: 16 files per directory, with a mean of 20 KB.
fn populate(dir: &Path, files: u64, text: &str) -> Result<()> {
    let mut rng = Rng(1);
    let mut dirs = vec![dir.to_path_buf()];
    fs::create_dir(dir)?;
    for n in 0..files / 16 {
        let path = rng.pick(&dirs).join(format!("dir-{n}"));
        fs::create_dir(&path)?;
        dirs.push(path);
    }
    for n in 0..files {
        // Mostly short, sometimes long.
        let bound = 256 << rng.below(10);
        let len = bound / 2 + rng.below(bound / 2);
        let contents = contents(&mut rng, text, len);
        fs::write(rng.pick(&dirs).join(format!("file-{n}.c")), contents)?;
    }
    Ok(())
}

/// Makes a text of `len` bytes from pieces of another.
fn contents(rng: &mut Rng, text: &str, len: usize) -> String {
    let mut out = String::with_capacity(len);
    while out.len() < len {
        let start = rng.below(text.len() - 1024);
        let end = start + 256 + rng.below(512).min(len - out.len());
        let piece = text.get(start..end).unwrap_or(" ");
        out.push_str(&piece[..piece.len().min(len - out.len())]);
    }
    out
}

/// Reads all sources and documents of the tree, without non-ASCII characters.
fn corpus(root: &Path) -> Result<String> {
    let mut find = Command::new("git");
    find.args(["ls-files", "*.rs", "*.md"]).current_dir(root);
    let mut text = String::new();
    for path in output(&mut find)?.lines() {
        let file = fs::read_to_string(root.join(path)).unwrap_or_default();
        text.extend(file.chars().filter(char::is_ascii));
    }
    ensure!(text.len() > 1 << 20, "{}: too few sources", root.display());
    Ok(text)
}

/// A seeded sequence of numbers (xorshift), so that every machine gets the same names and lengths.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).unwrap_or(0) % bound.max(1)
    }

    fn pick<'p>(&mut self, of: &'p [PathBuf]) -> &'p PathBuf {
        &of[self.below(of.len())]
    }
}
