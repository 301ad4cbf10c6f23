//! `forerun man`: makes the man pages, for packagers. Hidden, because users read them with man(1).
//!
//! The pages are made from the definitions of the command line. This module writes the usage line
//! and the examples itself, since the generator orders operands by definition and reflows examples
//! like prose.

mod compat;
mod environment;
mod helper;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Related commands, whose pages refer to each other.
const RELATED: &[&[&str]] = &[
    &[
        "scan", "info", "ls", "cat", "extract", "tar", "diff", "dump",
    ],
    &["mount", "run", "umount", "status", "restart", "trace"],
    &["pack", "convert", "mkfs", "extract", "gc"],
    &["push", "pull", "cache", "mount"],
    &["check", "salvage", "info", "dump", "label", "mkfs"],
    &["bench", "mount", "demo"],
];

/// Write the man pages into a directory, which is made if need be
///
/// The page of section 8 goes to man8 beside a directory of the name man1, and into DIR otherwise.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Where to
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
}

pub fn run(_: &Context, args: &ManArgs, mut main: Command) -> Result {
    let failed = |error: io::Error| Failure::output(&error).of(args.dir.display());
    let dir = &args.dir;
    fs::create_dir_all(dir).map_err(failed)?;
    main = in_full(main);
    main.build();
    for page in pages(&main) {
        let text = render(page, &main).map_err(failed)?;
        fs::write(dir.join(format!("{}.1", name(page))), text).map_err(failed)?;
    }
    let version = main.get_version().unwrap_or_default();
    let mut text = Vec::new();
    compat::render(version, &mut text).map_err(failed)?;
    fs::write(dir.join(format!("{}.1", compat::NAME)), text).map_err(failed)?;
    let mut text = Vec::new();
    helper::render(version, &mut text).map_err(failed)?;
    let dir = of_administrators(dir);
    fs::create_dir_all(&dir).map_err(failed)?;
    fs::write(dir.join(format!("{}.8", helper::NAME)), text).map_err(failed)?;
    Ok(Exit::Ok)
}

/// Makes the text of every option visible, because the generator omits options that the short help
/// hides.
fn in_full(command: Command) -> Command {
    command
        .mut_args(|arg| arg.hide_short_help(false))
        .mut_subcommands(in_full)
}

/// Returns the directory of section 8 that belongs to one of section 1.
fn of_administrators(dir: &Path) -> PathBuf {
    match dir.file_name() {
        Some(name) if name == "man1" => dir.with_file_name("man8"),
        Some(_) | None => dir.to_path_buf(),
    }
}

/// Returns the program, its commands and their subcommands.
fn pages(main: &Command) -> Vec<&Command> {
    let mut pages = vec![main];
    let mut next = 0;
    while let Some(page) = pages.get(next) {
        let below = page.get_subcommands().filter(|page| !page.is_hide_set());
        let below: Vec<_> = below.collect();
        pages.extend(below);
        next += 1;
    }
    pages
}

fn name(page: &Command) -> &str {
    page.get_display_name().unwrap_or_else(|| page.get_name())
}

fn render(page: &Command, main: &Command) -> io::Result<Vec<u8>> {
    let version = main.get_version().unwrap_or_default();
    let man = Man::new(page.clone())
        .title(name(page))
        .source(format!("forerun {version}"))
        .manual("forerun");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(page, &mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if page.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let help = page.get_after_long_help().or_else(|| page.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    notes(&help, &mut roff);
    exit_status(&mut roff);
    environment(page, main, &mut roff);
    examples(&help, &mut roff);
    see_also(page, main, &mut roff);
    roff.to_writer(&mut text)?;
    Ok(text)
}

fn synopsis(page: &Command, out: &mut dyn Write) -> io::Result<()> {
    let usage = page.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage)]);
    roff.to_writer(&mut { out })
}

/// Writes the help text after the options, except examples and exit codes, which have their own
/// sections.
fn notes(help: &str, roff: &mut Roff) {
    let is_note = |text: &&str| !text.starts_with("Examples:") && !text.starts_with("Exit status:");
    let notes: Vec<_> = help.split("\n\n").filter(is_note).collect();
    if !help.is_empty() && !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        lines(roff, &notes.join("\n\n"));
    }
}

fn examples(help: &str, roff: &mut Roff) {
    let mut blocks = help.split("\n\n");
    let examples = blocks.find_map(|block| block.strip_prefix("Examples:\n"));
    if let Some(examples) = examples {
        roff.control("SH", ["EXAMPLES"]);
        lines(roff, examples);
    }
}

/// Writes a text line by line, unchanged.
fn lines(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    for line in text.lines() {
        match line {
            "" => roff.control("sp", []),
            line => roff.text([roman(line)]),
        };
    }
    roff.control("fi", []);
}

fn section(roff: &mut Roff, heading: &str, terms: &[(&str, &str)]) {
    roff.control("SH", [heading]);
    for (term, meaning) in terms {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(*meaning)]);
    }
}

fn exit_status(roff: &mut Roff) {
    let codes = Exit::MEANINGS.iter();
    let codes: Vec<_> = codes
        .map(|(exit, text)| (exit.code().to_string(), *text))
        .collect();
    let terms: Vec<_> = codes
        .iter()
        .map(|(code, text)| (code.as_str(), *text))
        .collect();
    section(roff, "EXIT STATUS", &terms);
}

fn environment(page: &Command, main: &Command, roff: &mut Roff) {
    let is_remote = page.get_arguments().any(|arg| {
        let heading = arg.get_help_heading();
        heading == Some("Images at servers")
    });
    let command = (name(page) != name(main)).then(|| page.get_name());
    let variables = environment::variables(command, is_remote);
    let terms: Vec<_> = variables
        .map(|variable| (variable.name, variable.effect))
        .collect();
    section(roff, "ENVIRONMENT", &terms);
}

fn see_also(page: &Command, main: &Command, roff: &mut Roff) {
    let own = name(page);
    let names = pages(main).into_iter().map(name);
    let names: Vec<_> = if own == name(main) {
        names.collect()
    } else {
        let word = own.split('-').nth(1).unwrap_or_default();
        let groups = RELATED.iter().filter(|group| group.contains(&word));
        let words: Vec<_> = groups.copied().flatten().collect();
        let is_related = |name: &&str| {
            let mut parts = name.split('-').skip(1);
            match (parts.next(), parts.next()) {
                (None, _) => true,
                (Some(first), None) => words.contains(&&first) || first == word,
                (Some(first), Some(_)) => first == word,
            }
        };
        names.filter(is_related).collect()
    };
    let names = names.iter().filter(|name| **name != own);
    let mut names: Vec<_> = names.map(|name| format!("{name}(1)")).collect();
    if own == name(main) {
        names.push(format!("{}(1)", compat::NAME));
    }
    if own.ends_with("-mount") || own == name(main) {
        names.push(format!("{}(8)", helper::NAME));
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(names.join(", "))]);
}
