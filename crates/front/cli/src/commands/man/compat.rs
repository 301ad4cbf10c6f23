//! The page `forerun-compat(1)`, about the other program names that forerun supports.

use std::io::{self, Write};

use clap_mangen::roff::{Roff, roman};

use super::lines;

/// The name of the page, without its section.
pub const NAME: &str = "forerun-compat";

pub fn render(version: &str, out: &mut dyn Write) -> io::Result<()> {
    let programs = forerun_compat::usages();
    let names: Vec<_> = programs.iter().map(|(name, _)| *name).collect();
    let mut roff = Roff::new();
    let source = format!("forerun {version}");
    roff.control("TH", [NAME, "1", "", source.as_str(), "forerun"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!(
        "{NAME} - programs whose names forerun answers to"
    ))]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(format!(
        "A link to forerun with the name of one of these programs takes the options of that program: {}. \
         squashfuse_ll takes the options of squashfuse, and mount.exfat-fuse the options of mount.exfat. An option that is not \
         listed is refused.",
        names.join(", ")
    ))]);
    for (name, usage) in &programs {
        roff.control("SH", [*name]);
        lines(&mut roff, usage);
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman("The exit status of the program whose name is used.")]);
    roff.control("SH", ["EXAMPLES"]);
    lines(
        &mut roff,
        "ln -s forerun mksquashfs\n./mksquashfs dir new.sqsh -comp zstd",
    );
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("forerun(1), forerun-mount(1), forerun-pack(1)")]);
    roff.to_writer(&mut { out })
}
