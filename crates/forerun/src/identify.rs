//! Finds the format of an image by its first bytes, and describes unknown bytes.

use forerun_disk::{Container, Foreign};
use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, Format};

use crate::OpenOptions;
use crate::registry::{formats, object_formats};

/// Returns how many bytes from the start the probes of all formats need.
pub fn probe_len() -> usize {
    let lengths = formats().iter().map(|format| format.probe_len);
    lengths.max().unwrap_or(0)
}

/// Returns the format that recognises the bytes. With `wanted`, considers only that format.
pub fn find_format(head: &[u8], wanted: Option<&str>) -> Option<&'static Format> {
    formats()
        .iter()
        .find(|format| wanted.is_none_or(|name| format.name == name) && (format.probe)(head))
}

/// Returns how many bytes from the end the probes of all formats need. With `wanted`, considers
/// only that format.
pub fn tail_len(wanted: Option<&str>) -> usize {
    let formats = formats().iter();
    let wanted = formats.filter(|format| wanted.is_none_or(|name| format.name == name));
    let lengths = wanted.filter_map(|format| Some(format.tail?.len));
    lengths.max().unwrap_or(0)
}

/// Returns the format that recognises the last bytes of a file. With `wanted`, considers only that
/// format.
pub fn find_by_tail(tail: &[u8], wanted: Option<&str>) -> Option<&'static Format> {
    formats().iter().find(|format| {
        let is_wanted = wanted.is_none_or(|name| format.name == name);
        let probe = format.tail.filter(|_| is_wanted);
        probe.is_some_and(|probe| {
            let start = tail.len().saturating_sub(probe.len);
            (probe.probe)(&tail[start..])
        })
    })
}

/// Returns the format with this name, without looking at any bytes.
pub fn named(wanted: Option<&str>) -> Option<&'static Format> {
    formats().iter().find(|format| Some(format.name) == wanted)
}

/// Returns the format to open if the caller names an object store: for example composefs if
/// `format` is EROFS.
pub fn with_objects(format: &'static Format) -> &'static Format {
    let mut formats = object_formats().iter();
    let objects = formats.find(|objects| objects.found_as == format.name);
    let objects = objects.and_then(|objects| named(Some(objects.format)));
    objects.unwrap_or(format)
}

/// Returns the format of the part of a source that the options select, if it is recognised.
pub fn format_of(source: &dyn ReadAt, options: &OpenOptions) -> Option<&'static Format> {
    let wanted = options.format.as_deref();
    let range = options.range(source.len());
    let len = range.end - range.start;
    let mut head = vec![0; probe_len().min(usize_from(len))];
    source.read_exact_at(range.start, &mut head).ok()?;
    find_format(&head, wanted).or_else(|| named(wanted))
}

/// Returns the error for bytes of unknown format: `head`, at `offset` of the source, which may be a
/// container.
pub fn unknown(
    wanted: Option<&str>,
    head: &[u8],
    container: Option<Container>,
    offset: u64,
) -> Error {
    let (what, mut advice) = describe(head);
    let mut found = match container {
        Some(container @ Container::VirtualDisk(_)) => {
            advice = Some(CONVERT);
            container.to_string()
        }
        Some(container) => format!("{container} that holds {what}"),
        None if offset == 0 && head.starts_with(ELF) => {
            format!("{what} without an image behind it")
        }
        None => what,
    };
    if offset > 0 {
        found += &format!(" at offset {offset}");
    }
    if let Some(advice) = advice {
        found += "; ";
        found += advice;
    }
    Error::UnknownFormat {
        expected: wanted.map(str::to_string),
        found,
    }
}

/// Returns the error for contents that are recognised but that forerun does not open.
pub fn unknown_contents(wanted: Option<&str>, name: &str, offset: u64) -> Error {
    let found = match offset {
        0 => name.to_string(),
        _ => format!("{name} at offset {offset}"),
    };
    Error::UnknownFormat {
        expected: wanted.map(str::to_string),
        found,
    }
}

const CONVERT: &str = "convert it: qemu-img convert -O raw IMAGE IMAGE.raw";

const ELF: &[u8] = b"\x7fELF";

fn describe(head: &[u8]) -> (String, Option<&'static str>) {
    const UNPACK: Option<&str> = Some("decompress it first");
    let known: &[(&[u8], &str, Option<&str>)] = &[
        (ELF, "an ELF file", None),
        (b"\x1f\x8b", "a gzip file", UNPACK),
        (b"\xfd7zXZ", "an xz file", UNPACK),
        (b"\x28\xb5\x2f\xfd", "a zstd file", UNPACK),
    ];
    if let Some(foreign) = Foreign::of(head) {
        let what = format!("a {} image", foreign.name());
        return (what, Some(CONVERT));
    }
    if head.is_empty() {
        return ("no data".to_string(), None);
    }
    match known.iter().find(|(magic, ..)| head.starts_with(magic)) {
        Some((_, what, advice)) => ((*what).to_string(), *advice),
        None => {
            let start = hex(head.get(..8).unwrap_or(head));
            (format!("data that starts with {start}"), None)
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}
