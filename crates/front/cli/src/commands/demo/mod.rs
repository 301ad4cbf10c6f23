//! `forerun demo`: shows what the program is for, on an image made of this machine's own files.
//!
//! Every step runs the command it shows. The last one measures: it compares reading a large file
//! through the filesystem with reading the image itself, in both block modes, with cold caches. Nothing
//! is left behind, also after Ctrl-C.

mod files;
mod measure;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::{Args, ValueHint};
use forerun_fuse::UmountOptions;
use tempfile::TempDir;

use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;
use crate::output::Output;
use crate::size;
use measure::Measured;

/// Name of the large file in the image.
const BIG: &str = "big.bin";
const IMAGE: &str = "demo.img";

/// Make an image of files of this machine, then list, read, check, mount and measure it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun demo
  forerun demo --size-mb 1000 --dir /var/tmp")]
pub struct DemoArgs {
    /// Where to put the image meanwhile [default: TMPDIR or /tmp; /var/tmp where that is in memory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Size of the large file in the image, in MiB
    #[arg(long, value_name = "N", default_value = "250", value_parser = clap::value_parser!(u16).range(1..=4000))]
    pub size_mb: u16,
}

/// Runs it.
pub fn run(context: &Context, args: &DemoArgs) -> Result {
    let place = DemoDir::new(args)?;
    let out = Output::stdout()?;
    let mut demo = Demo {
        place: &place,
        out,
        speaks: !context.global.json,
    };
    let measured = demo.run(u64::from(args.size_mb) << 20)?;
    if context.global.json {
        demo.out.json(&table::to_json(&measured))?;
    }
    demo.out.finish()?;
    Ok(Exit::Ok)
}

/// The directory of all files, which are removed with it.
pub struct DemoDir {
    dir: TempDir,
    _guard: OnInterrupt,
}

impl DemoDir {
    fn new(args: &DemoArgs) -> Result<Self> {
        let parent = args.dir.clone().unwrap_or_else(files::default_dir);
        let failed = |error: std::io::Error| Failure::output(&error).of(parent.display());
        files::check_space(&parent, u64::from(args.size_mb) << 20)?;
        let dir = tempfile::Builder::new()
            .prefix("forerun-demo-")
            .tempdir_in(&parent)
            .map_err(failed)?;
        let path = dir.path().to_path_buf();
        let guard = OnInterrupt::new(move || {
            // Twice: the work that is interrupted may just have made another file.
            for _ in 0..2 {
                let _ = std::fs::remove_dir_all(&path);
            }
        });
        Ok(Self { dir, _guard: guard })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

struct Demo<'p> {
    place: &'p DemoDir,
    out: Output,
    speaks: bool,
}

impl Demo<'_> {
    fn run(&mut self, size: u64) -> Result<Measured> {
        let dir = self.place.dir.path().display().to_string();
        self.say(&format!("In {dir}, which is removed at the end."))?;
        self.title("1. An image of files of this machine")?;
        let files = self.place.path("files");
        let made = files::make(&files, BIG, size)?;
        self.say(&format!(
            "   files/{BIG}: {} of {}",
            size::human(size),
            made.source
        ))?;
        let start = Instant::now();
        self.command(&[
            "pack", "--format", "romfs", "--align", "4096", "files", IMAGE,
        ])?;
        let taken = start.elapsed();
        let image = self.place.path(IMAGE);
        let len = image.metadata().map_or(0, |metadata| metadata.len());
        self.say(&format!(
            "   {}, in {}",
            size::human(len),
            table::seconds(taken)
        ))?;
        // What is measured later must not compete with the originals for memory.
        let _ = std::fs::remove_dir_all(&files);

        self.title("2. What is in it")?;
        self.command(&["ls", "-lR", IMAGE])?;

        self.title("3. A file from it")?;
        let start = Instant::now();
        let digest = self.cat(&[IMAGE, BIG])?;
        let taken = table::seconds(start.elapsed());
        if digest != made.md5 {
            let message = format!(
                "md5 {digest} of what was read, {} of what was packed",
                made.md5
            );
            return Err(Failure::new(Exit::Image, "mismatch", message).of(IMAGE));
        }
        self.say(&format!("   {digest}, as it was packed, in {taken}"))?;

        self.title("4. Whether it is whole")?;
        self.command(&["check", IMAGE])?;

        self.title("5. As a directory")?;
        self.mounted()?;

        self.title("6. What reading through the filesystem costs")?;
        let measured = measure::all(&image, self.place, &made.md5)?;
        self.say(&table::text(&measured))?;
        Ok(measured)
    }

    fn say(&mut self, text: &str) -> Result<()> {
        if !self.speaks {
            return Ok(());
        }
        self.out.line(text)?;
        self.out.finish()
    }

    fn title(&mut self, text: &str) -> Result<()> {
        self.say(&format!("\n{text}"))
    }

    /// Runs this program, and shows the command and what it prints.
    fn command(&mut self, args: &[&str]) -> Result<()> {
        self.say(&format!("   $ forerun {}", args.join(" ")))?;
        let output = self.program(args)?.stdin(Stdio::null()).output();
        let output = output.map_err(|error| cannot_run(&error))?;
        if !output.status.success() {
            // Its standard error, which was captured, says why.
            let _ = std::io::stderr().write_all(&output.stderr);
            let message = format!("forerun {} failed: {}", args.join(" "), output.status);
            return Err(Failure::new(Exit::Image, "demo", message));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines() {
            self.say(format!("   {line}").trim_end())?;
        }
        Ok(())
    }

    /// Mounts, lists and unmounts, as a user would; says so where FUSE does not work here.
    fn mounted(&mut self) -> Result<()> {
        let dir = self.place.path("mnt");
        std::fs::create_dir_all(&dir).map_err(|error| Failure::output(&error).of(dir.display()))?;
        self.say(&format!("   $ forerun mount {IMAGE} mnt"))?;
        let mounted = dir.clone();
        let _guard = OnInterrupt::new(move || {
            let options = UmountOptions {
                lazy: true,
                force: false,
            };
            let _ = forerun_fuse::umount(&mounted, options);
        });
        let output = self
            .program(&["--quiet", "mount", IMAGE, "mnt"])?
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| cannot_run(&error))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            for line in why.lines() {
                self.say(&format!("   {}", crate::escape::printable(line)))?;
            }
            return self.say("   FUSE does not work here: below, the library reads the image.");
        }
        let listed = self.list(&dir);
        self.command(&["umount", "mnt"]).and(listed)
    }

    /// Lists the mount as the system shows it.
    fn list(&mut self, dir: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Failure::source(&error).of(dir.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            names.push(
                entry
                    .map_err(failed)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        names.sort();
        self.say("   $ ls mnt")?;
        self.say(&format!("   {}", names.join("  ")))
    }

    /// Runs `forerun cat`, and returns the md5 of what it writes.
    fn cat(&mut self, args: &[&str]) -> Result<String> {
        self.say(&format!("   $ forerun cat {} | md5sum", args.join(" ")))?;
        let args = [&["cat"], args].concat();
        let mut child = self
            .program(&args)?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| cannot_run(&error))?;
        let digest = match child.stdout.take() {
            Some(pipe) => measure::md5(pipe).map_err(|error| cannot_run(&error)),
            None => Err(Failure::new(Exit::Source, "io", "no pipe from forerun cat")),
        };
        let status = child.wait().map_err(|error| cannot_run(&error))?;
        if !status.success() {
            let message = format!("forerun cat failed: {status}");
            return Err(Failure::new(Exit::Image, "demo", message));
        }
        digest
    }

    fn program(&self, args: &[&str]) -> Result<Command> {
        let exe = std::env::current_exe().map_err(|error| cannot_run(&error))?;
        let mut command = Command::new(exe);
        command
            .args(args)
            .current_dir::<&Path>(self.place.dir.path());
        Ok(command)
    }
}

fn cannot_run(error: &std::io::Error) -> Failure {
    Failure::source(error).of("running forerun")
}
