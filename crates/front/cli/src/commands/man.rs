//! `forerun man`: the man pages, for packagers. Hidden: users read them with man(1).
//!
//! Made from the definitions of the command line. The usage line and the examples are put in here,
//! since the generator orders operands by definition and fills examples like prose.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::help;

/// Write the man pages into a directory, which is made if need be
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Where to
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// Runs it.
pub fn run(_: &Context, args: &ManArgs) -> Result {
    let failed = |error: io::Error| Failure::output(&error).of(args.dir.display());
    fs::create_dir_all(&args.dir).map_err(failed)?;
    let mut main = help::command();
    main.build();
    let pages = main.get_subcommands().filter(|page| !page.is_hide_set());
    for page in pages.chain([&main]) {
        let text = render(page, &main).map_err(failed)?;
        let path = args.dir.join(format!("{}.1", name(page)));
        fs::write(path, text).map_err(failed)?;
    }
    Ok(Exit::Ok)
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
    if let Some(help) = page.get_after_help() {
        examples(&help.to_string(), &mut text)?;
    }
    exit_status(&mut text)?;
    see_also(page, main, &mut text)?;
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

/// Writes the text that follows the options in the help, line by line as it is there.
fn examples(help: &str, out: &mut dyn Write) -> io::Result<()> {
    // The codes have a section of their own.
    let help = help.split("\n\nExit status:").next().unwrap_or(help);
    let (heading, body) = match help.strip_prefix("Examples:\n") {
        Some(body) => ("EXAMPLES", body),
        None => ("NOTES", help),
    };
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    roff.control("nf", []);
    for line in body.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.to_writer(&mut { out })
}

fn exit_status(out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, meaning) in Exit::MEANINGS {
        roff.control("TP", []);
        roff.text([roman(exit.code().to_string())]);
        roff.text([roman(*meaning)]);
    }
    roff.to_writer(&mut { out })
}

fn see_also(page: &Command, main: &Command, out: &mut dyn Write) -> io::Result<()> {
    let others = main
        .get_subcommands()
        .filter(|other| !other.is_hide_set())
        .chain([main])
        .filter(|other| name(other) != name(page));
    let names: Vec<_> = others.map(|other| format!("{}(1)", name(other))).collect();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(names.join(", "))]);
    roff.to_writer(&mut { out })
}
