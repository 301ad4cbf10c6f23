//! The page `mount.fuse.forerun(8)`, about the name under which mount(8) calls the program.

use std::io::{self, Write};

use clap_mangen::roff::{Roff, bold, italic, roman};

use super::{lines, section};
use crate::mount::MOUNT_OPTIONS;

/// The name of the page, without its section.
pub const NAME: &str = "mount.fuse.forerun";

const FLAGS: &[(&str, &str)] = &[
    (
        "-o OPTIONS",
        "Mount options, separated by commas; see below.",
    ),
    ("-f", "Do everything except mounting."),
    ("-s", "Ignore unknown mount options."),
    ("-v", "Log to standard error."),
    ("-n, -t TYPE, -N NAMESPACE", "Accepted without effect."),
];

const STATUS: &[(&str, &str)] = &[
    ("0", "The image is mounted."),
    ("1", "The command line is wrong."),
    ("32", "The image could not be mounted."),
];

const FSTAB: &str = "\
/srv/a.img  /mnt/a  fuse.forerun  ro,nofail,allow_other  0 0";

pub fn render(version: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    let source = format!("forerun {version}");
    roff.control("TH", [NAME, "8", "", source.as_str(), "forerun"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!(
        "{NAME} - mount a filesystem image with forerun"
    ))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([
        bold(NAME),
        roman(" "),
        italic("IMAGE DIR"),
        roman(" [-sfnv] [-o "),
        italic("OPTIONS"),
        roman("] [-t "),
        italic("TYPE"),
        roman("]"),
    ]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "mount(8) runs this program for the type fuse.forerun, on its command line and in /etc/fstab. \
         It works like forerun mount, and returns when the mount answers.",
    )]);
    section(&mut roff, "OPTIONS", FLAGS);
    roff.control("SH", ["MOUNT OPTIONS"]);
    lines(&mut roff, MOUNT_OPTIONS);
    section(&mut roff, "EXIT STATUS", STATUS);
    roff.control("SH", ["EXAMPLES"]);
    roff.text([roman("A line of /etc/fstab:")]);
    lines(&mut roff, FSTAB);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(
        "forerun(1), forerun-mount(1), forerun-umount(1), forerun-status(1), mount(8), fstab(5)",
    )]);
    roff.to_writer(&mut { out })
}
