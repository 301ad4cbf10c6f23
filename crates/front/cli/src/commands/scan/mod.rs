//! `forerun scan`: finds the images in a file of unknown contents, and shows how to open each.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use forerun::Observer;
use forerun::unstable::disk::Container;
use forerun::unstable::disk::scan::{ScanFinding, ScanKind, ScanOptions, Scanned, scan};
use forerun::unstable::formats;
use serde_json::{Map, Value};

use crate::args::{ImageArgs, RemoteArgs, SourceArgs};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::{escape, printable};
use crate::exit::Exit;
use crate::output::Output;
use crate::progress::Progress;
use crate::{json, size};

/// List what is in a file of unknown contents: firmware, a disk image, an executable
///
/// Finds images of all formats at any byte, and shows the command that opens each. Also lists what forerun does
/// not open: other filesystems, archives, compressed streams, kernels, device trees, certificates and keys. The
/// bytes between are listed as padding, or as unknown with their entropy in bits per byte: 8 for compressed
/// and encrypted data. Superblocks, lengths and checksums are verified.
///
/// Exit status: 0 if something was found, 1 if nothing was found.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun scan firmware.bin                  images, and how to open them
  forerun scan /dev/sdb                      partitions and their contents
  forerun ls --partition 2 disk.img          open one of them
  forerun scan --json firmware.bin           for programs")]
pub struct ScanArgs {
    #[cfg_attr(
        feature = "network",
        doc = "File, device, https://, s3:// or oci:// name; - for standard input"
    )]
    #[cfg_attr(not(feature = "network"), doc = "File or device; - for standard input")]
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Also search inside the images that are found
    #[arg(short, long)]
    pub all: bool,
    /// Byte offset to start at, such as 1M or 0x100000 [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
    /// Number of bytes to search [default: to the end of the file]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// Search only this partition
    #[arg(long, value_name = "N", conflicts_with_all = ["offset", "size"])]
    pub partition: Option<u32>,
    /// Read without a lock, even if another process or the kernel writes to the file
    #[arg(long)]
    pub no_lock: bool,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

pub fn run(context: &Context, args: &ScanArgs) -> Result {
    let image_args = args.image_args();
    let name = image_name(&image_args);
    let prepared = context.prepare(&image_args)?;
    context.confine(&prepared.sandbox());
    let (source, options) = prepared.into_source(context)?;
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let progress = Progress::new(context, "searching", source.len());
    let mut done = 0;
    let scanned = scan(
        &source,
        formats(),
        ScanOptions {
            all: args.all,
            offset: options.offset,
            size: options.size,
        },
        &observer,
        &mut |bytes| {
            progress.add(bytes.saturating_sub(done));
            done = bytes;
        },
    );
    drop(progress);
    let scanned = scanned.map_err(|error| Failure::from(error).of(&name))?;
    let shown = ShownImage {
        name: &name,
        at_start: options.offset == 0,
        scanned: &scanned,
    };
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&shown.json())?;
    } else if !scanned.findings.is_empty() {
        out.text(shown.table())?;
    }
    out.finish()?;
    if scanned.is_cut {
        context.note(&format!("{name}: there is more than can be listed"));
    }
    if !scanned.findings.iter().any(|it| it.kind.is_known()) {
        context.note(&format!("{name}: nothing of a known kind was found"));
        return Ok(Exit::Image);
    }
    Ok(Exit::Ok)
}

impl ScanArgs {
    fn image_args(&self) -> ImageArgs {
        ImageArgs {
            image: self.file.clone(),
            source: SourceArgs {
                offset: self.offset,
                size: self.size,
                partition: self.partition,
                no_lock: self.no_lock,
                remote: self.remote.clone(),
                ..SourceArgs::default()
            },
            ..ImageArgs::default()
        }
    }
}

struct ShownImage<'s> {
    name: &'s str,
    /// Whether the search began at the start of the file, so that the partitions found belong to
    /// the file itself.
    at_start: bool,
    scanned: &'s Scanned,
}

impl ShownImage<'_> {
    fn outer(&self, finding: &ScanFinding) -> Option<&ScanFinding> {
        self.scanned.findings.get(finding.inside?)
    }

    /// Returns the number of findings that enclose `finding`.
    fn depth(&self, finding: &ScanFinding) -> usize {
        std::iter::successors(self.outer(finding), |finding| self.outer(finding)).count()
    }

    /// Returns the command that lists an image.
    fn command(&self, finding: &ScanFinding) -> Option<String> {
        let file = match self.name {
            "standard input" => "-".to_string(),
            name => quoted(name),
        };
        match finding.kind {
            ScanKind::Image(_) => {}
            // A disk that fills the file has commands of its own.
            ScanKind::Container(Container::AndroidSparse | Container::Ubi)
                if finding.inside.is_some() || finding.offset > 0 || !self.at_start => {}
            ScanKind::Container(Container::VirtualDisk(_)) => {
                return Some(format!(
                    "qemu-img convert -O raw {file} {}",
                    quoted(&format!("{}.raw", self.name))
                ));
            }
            _ => return None,
        }
        let place = match self.outer(finding) {
            Some(outer) if outer.offset == finding.offset && self.at_start => match outer.kind {
                ScanKind::Partition(number) => format!("--partition {number} "),
                _ => offset(finding),
            },
            _ => offset(finding),
        };
        // The last bytes show that it is an archive.
        let size = match (finding.kind, finding.len) {
            (ScanKind::Image("zip"), Some(len)) => format!("--size {len} "),
            _ => String::new(),
        };
        let salvage = if finding.is_truncated {
            "--salvage "
        } else {
            ""
        };
        Some(format!("forerun ls {salvage}{place}{size}{file}"))
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["offset", "hex", "size", "found", "about"]);
        for column in table.column_iter_mut().take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for finding in &self.scanned.findings {
            let indent = "  ".repeat(self.depth(finding));
            let found = match finding.kind {
                ScanKind::Partition(number) => format!("partition {number}"),
                ref kind => kind.name().to_string(),
            };
            table.add_row([
                finding.offset.to_string(),
                format!("{:#x}", finding.offset),
                finding.len.map_or_else(|| "?".to_string(), size::human),
                format!("{indent}{found}"),
                about(finding),
            ]);
        }
        // Each command is on a line of its own, which a terminal does not truncate.
        let commands = self.scanned.findings.iter().map(|it| self.command(it));
        let mut text = String::new();
        for (line, command) in table.lines().zip([None].into_iter().chain(commands)) {
            text += line.trim_end();
            text += "\n";
            if let Some(command) = command {
                text += &format!("    {command}\n");
            }
        }
        text
    }

    fn json(&self) -> Value {
        let findings = self.scanned.findings.iter().map(|finding| {
            let mut object = Map::new();
            object.insert("offset".into(), finding.offset.into());
            object.insert("size".into(), finding.len.into());
            object.insert("type".into(), finding.kind.name().into());
            let number = match finding.kind {
                ScanKind::Partition(number) => Some(number),
                _ => None,
            };
            object.insert("partition".into(), number.into());
            json::put_bytes(&mut object, "label", &finding.label);
            object.insert("details".into(), finding.details.clone().into());
            object.insert("intact".into(), finding.intact.into());
            object.insert("truncated".into(), finding.is_truncated.into());
            let entropy = finding.entropy.map(|bits| (bits * 1000.0).round() / 1000.0);
            object.insert("entropy".into(), entropy.into());
            object.insert("inside".into(), finding.inside.into());
            object.insert("command".into(), self.command(finding).into());
            Value::from(object)
        });
        let mut object = Map::new();
        object.insert("image".into(), self.name.into());
        object.insert("findings".into(), findings.collect());
        object.insert("complete".into(), (!self.scanned.is_cut).into());
        object.into()
    }
}

/// Returns the option for an image that is not at the start of the file.
fn offset(finding: &ScanFinding) -> String {
    match finding.offset {
        0 => String::new(),
        offset => format!("--offset {offset} "),
    }
}

/// Describes a finding: its label, its details, and whether its checksum is wrong.
fn about(finding: &ScanFinding) -> String {
    let mut parts = Vec::new();
    if !finding.label.is_empty() {
        parts.push(format!("\"{}\"", escape(&finding.label)));
    }
    if !finding.details.is_empty() {
        parts.push(printable(&finding.details));
    }
    if let Some(entropy) = finding.entropy {
        parts.push(format!("entropy {entropy:.2}"));
    }
    if finding.intact == Some(false) {
        parts.push("wrong checksum".to_string());
    }
    parts.join(", ")
}

/// Quotes a name for a shell if needed.
fn quoted(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+:".contains(char);
    let plain = printable(name);
    if plain.chars().all(is_plain) {
        plain
    } else {
        format!("'{}'", plain.replace('\'', "'\\''"))
    }
}
