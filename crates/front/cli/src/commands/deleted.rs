//! `forerun salvage --deleted`: deleted files, listed and saved.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use forerun::Reader;
use forerun::unstable::exfat::{DeletedFile, Exfat, Remains};
use forerun_io::usize_from;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use crate::advice::absolute;
use crate::args::ImageArgs;
use crate::columns::time;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::escape;
use crate::exit::Exit;
use crate::json::put_bytes;
use crate::output::{JsonArray, Output};
use crate::place::OutputDir;
use crate::size::{count_of, counted};
use crate::{layers, output};

/// Bytes that are copied at once.
const STEP: u64 = 1 << 20;

/// List deleted files of an exFAT volume, and save them
///
/// A file is "whole" if none of its clusters was used again, "overwritten" if some were, and
/// "fragmented" if it was in pieces: its contents may then be those of another file. Lost bytes are
/// zeros. Other options named --salvage read damaged images.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun salvage --deleted card.img
  forerun salvage --deleted -C photos card.img")]
pub struct SalvageArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Look for deleted files
    #[arg(long, required = true)]
    pub deleted: bool,
    /// Save the files below DIR, which must be empty or new
    #[arg(short = 'C', long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

pub fn run(context: &Context, args: &SalvageArgs) -> Result {
    layers::refuse(&args.image.layers, "deleted files")?;
    let mut image_args = args.image.clone();
    image_args.source.rescue = true;
    let name = image_name(&image_args);
    let prepared = context.prepare(&image_args)?;
    let place = args.directory.as_deref().map(make_empty).transpose()?;
    let sandbox = prepared.sandbox();
    context.confine(&match &place {
        Some(place) => place.sandbox(sandbox),
        None => sandbox,
    });
    let image = context.open_prepared(prepared, None)?;
    let Some(volume) = image.driver::<Exfat>() else {
        let format = image.reader().fs().volume().format;
        let message = format!("deleted files of {format} cannot be found; those of exFAT can");
        return Err(Failure::new(Exit::Format, "unsupported", message).of(name));
    };
    let files = volume.deleted_files();
    let mut files = files.map_err(|error| Failure::from(error).of(&name))?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    list(context, &files)?;
    let mut exit = Exit::Ok;
    if let Some(dir) = &args.directory {
        // Before the files, which could take the names of directories.
        for file in &files {
            let path = dir.join(OsStr::from_bytes(&file.path));
            if let Some(parent) = path.parent() {
                let made = fs::create_dir_all(parent);
                made.map_err(|error| output::failed(&error).of(parent.display()))?;
            }
        }
        // Files of one path are next to each other.
        let mut before: Option<(&[u8], u64)> = None;
        for file in &files {
            let number = match before {
                Some((path, number)) if path == file.path => number + 1,
                _ => 1,
            };
            before = Some((&file.path, number));
            if let Err(failure) = save(image.reader(), dir, (file, number)) {
                context.report(&failure.of(&name));
                exit = exit.and(Exit::Partial);
            }
        }
        if files.iter().any(|file| file.remains != Remains::Whole) {
            exit = exit.and(Exit::Partial);
        }
    }
    let whole = files
        .iter()
        .filter(|file| file.remains == Remains::Whole)
        .count();
    let all = counted(count_of(files.len()), "deleted file", "deleted files");
    context.note(&format!("{name}: {all}, {whole} of them whole"));
    Ok(exit)
}

const fn word(remains: Remains) -> &'static str {
    match remains {
        Remains::Whole => "whole",
        Remains::Overwritten => "overwritten",
        Remains::Fragmented => "fragmented",
    }
}

fn list(context: &Context, files: &[DeletedFile]) -> Result<()> {
    let mut out = Output::stdout()?;
    if context.global.json {
        let mut array = JsonArray::default();
        for file in files {
            let mut object = Map::new();
            put_bytes(&mut object, "path", &absolute(&file.path));
            object.insert("size".into(), file.size.into());
            object.insert("mtime".into(), file.modified.seconds.into());
            object.insert("state".into(), word(file.remains).into());
            let lost = file.lost.iter().map(|lost| json!([lost.start, lost.end]));
            object.insert("lost".into(), lost.collect());
            array.push(&mut out, &Value::Object(object))?;
        }
        array.finish(&mut out)?;
    } else {
        let zone = TimeZone::system();
        for file in files {
            let state = word(file.remains);
            let modified = time(file.modified, &zone);
            let path = escape(&absolute(&file.path));
            out.line(format!("{state:11} {:>12} {modified} {path}", file.size))?;
        }
    }
    out.finish()
}

fn make_empty(dir: &Path) -> Result<OutputDir> {
    let failed = |error: &io::Error| Failure::output(error).of(dir.display());
    let place = OutputDir::make(dir).map_err(|error| failed(&error))?;
    if fs::read_dir(dir)
        .map_err(|error| failed(&error))?
        .next()
        .is_some()
    {
        let failure = Failure::new(Exit::Output, "exists", "the directory is not empty");
        return Err(failure.of(dir.display()));
    }
    Ok(place)
}

/// Writes a file below `dir`: the `number`th of its path, which is part of the name from the second on.
fn save(reader: &Reader, dir: &Path, (file, number): (&DeletedFile, u64)) -> Result<()> {
    let path = dir.join(OsStr::from_bytes(&file.path));
    let failed = |error: io::Error| output::failed(&error).of(path.display());
    let mut out = create(&path, number).map_err(failed)?;
    let mut lost = file.lost.iter();
    let mut next = lost.next();
    let mut at = 0;
    while at < file.size {
        match next {
            Some(range) if range.start <= at => {
                at = range.end;
                next = lost.next();
                continue;
            }
            _ => {}
        }
        let end = next.map_or(file.size, |range| range.start).min(at + STEP);
        let len = usize_from(end - at);
        let data = reader.read(file.node, at, len);
        let data = data.map_err(|error| Failure::from(error).at(&absolute(&file.path)))?;
        if data.is_empty() {
            break;
        }
        io::Seek::seek(&mut out, io::SeekFrom::Start(at)).map_err(failed)?;
        out.write_all(&data).map_err(failed)?;
        at += count_of(data.len());
    }
    out.set_len(file.size).map_err(failed)?;
    let since = Duration::new(
        u64::try_from(file.modified.seconds).unwrap_or(0),
        file.modified.nanoseconds,
    );
    out.set_modified(UNIX_EPOCH + since).map_err(failed)
}

/// Creates a file that is not there yet.
fn create(path: &Path, mut number: u64) -> io::Result<File> {
    loop {
        let mut name = path.as_os_str().to_owned();
        if number > 1 {
            name.push(format!("~{number}"));
        }
        match File::create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created,
        }
    }
}
