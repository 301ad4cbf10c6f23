//! Access lists: the order in which a program first touches chunks, recorded in one run and
//! prefetched in the next.
//!
//! A list is text: a header line, the image, its chunk size, and then the chunks in the order of
//! their first touch. Each of these lines has one number or one ascending run `first-last`. A text
//! may hold several lists, such as those of the layers of a container image.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Mutex;

use forerun_io::Unpoisoned;

use crate::bitmap::Bitmap;
use crate::geometry::{Geometry, MAX_CHUNKS};
use crate::{CacheError, Result, runs};

const HEAD: &str = "forerun access list 1";
/// Longest text that is parsed, in bytes.
const LIMIT: usize = 64 << 20;

/// Chunks in the order of their first access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList {
    pub identity: String,
    /// The chunk size that chunk numbers refer to.
    pub chunk_size: u32,
    runs: Vec<Range<u64>>,
}

impl AccessList {
    /// Returns runs of chunks in the order of first access. A list made for another version of the
    /// image may name chunks past its end.
    #[must_use]
    pub fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// Converts the runs to an image with another length or chunk size. The result covers the same
    /// bytes, up to the end of the image.
    #[must_use]
    pub fn runs_for(&self, geometry: &Geometry) -> Vec<Range<u64>> {
        let size = u64::from(self.chunk_size);
        let bytes = |run: &Range<u64>| run.start.saturating_mul(size)..run.end.saturating_mul(size);
        let chunks = |run| geometry.chunks_of(&bytes(run));
        self.runs
            .iter()
            .map(chunks)
            .filter(|run| !run.is_empty())
            .collect()
    }

    #[must_use]
    pub fn chunks(&self) -> u64 {
        runs::total(&self.runs)
    }

    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{HEAD}\nimage: {}\nchunk: {}\n",
            self.identity, self.chunk_size
        );
        for run in &self.runs {
            // Writing to a string cannot fail.
            let _ = match run.end - run.start {
                1 => writeln!(text, "{}", run.start),
                _ => writeln!(text, "{}-{}", run.start, run.end - 1),
            };
        }
        text
    }

    /// Parses the lists of one or more images.
    ///
    /// # Errors
    /// [`CacheError::List`] with the number of the bad line.
    pub fn parse_all(text: &[u8]) -> Result<Vec<Self>> {
        let (mut lists, mut begin, mut before) = (Vec::new(), 0, 0);
        let (mut at, mut lines) = (0, 0);
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            if at > begin && line.trim_ascii_end() == HEAD.as_bytes() {
                lists.push(Self::parse_at(
                    text.get(begin..at).unwrap_or_default(),
                    before,
                )?);
                (begin, before) = (at, lines);
            }
            at += line.len();
            lines += 1;
        }
        lists.push(Self::parse_at(
            text.get(begin..).unwrap_or_default(),
            before,
        )?);
        Ok(lists)
    }

    /// Parses one list. Ignores repeated chunks.
    ///
    /// # Errors
    /// [`CacheError::List`] with the number of the bad line.
    pub fn parse(text: &[u8]) -> Result<Self> {
        Self::parse_at(text, 0)
    }

    /// Parses a list. `before` is the number of lines before it in the text.
    fn parse_at(text: &[u8], before: usize) -> Result<Self> {
        let refuse = |line: usize, reason| {
            let line = line + before;
            Err(CacheError::List { line, reason })
        };
        if text.len() > LIMIT {
            return refuse(1, "the list is longer than 64 MiB");
        }
        let Ok(text) = std::str::from_utf8(text) else {
            return refuse(1, "this is not text");
        };
        let mut lines = (1..).zip(text.lines());
        if lines.next().map(|(_, line)| line) != Some(HEAD) {
            return refuse(1, "this is not an access list of forerun");
        }
        let mut field = |name: &str| {
            let (_, line) = lines.next()?;
            Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_string())
        };
        let Some(identity) = field("image") else {
            return refuse(2, "the image is missing");
        };
        // Control characters would not survive writing and reading: a trailing carriage return gets
        // lost.
        if identity.chars().any(char::is_control) {
            return refuse(2, "the name of the image has control characters");
        }
        let size = field("chunk").and_then(|size| size.parse().ok());
        let Some(chunk_size) = size.filter(|size| Geometry::new(0, *size).is_ok()) else {
            return refuse(3, "the chunk size is missing or 0");
        };
        let mut list = Self {
            identity,
            chunk_size,
            runs: Vec::new(),
        };
        for (number, line) in lines {
            match parse_run(line) {
                Some(run) => runs::push(&mut list.runs, run),
                None => {
                    return refuse(
                        number,
                        "this is neither a chunk number nor a range of chunks",
                    );
                }
            }
        }
        Ok(list)
    }
}

fn parse_run(line: &str) -> Option<Range<u64>> {
    let number = |digits: &str| {
        let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
        plain
            .then(|| digits.parse::<u64>().ok())
            .flatten()
            .filter(|chunk| *chunk < MAX_CHUNKS)
    };
    let (first, last) = line.split_once('-').unwrap_or((line, line));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..last + 1)
}

/// Records the order in which chunks are touched. Touching a chunk again costs one bitmap lookup.
#[derive(Debug)]
pub struct AccessRecorder {
    identity: String,
    geometry: Geometry,
    touched: Bitmap,
    order: Mutex<Vec<Range<u64>>>,
}

impl AccessRecorder {
    #[must_use]
    pub fn new(identity: &str, geometry: Geometry) -> Self {
        Self {
            identity: identity.to_string(),
            geometry,
            touched: Bitmap::new(geometry.chunks()),
            order: Mutex::default(),
        }
    }

    pub fn touch(&self, range: &Range<u64>) {
        let chunks = self.geometry.chunks_of(range);
        if self.touched.all(chunks.clone()) {
            return;
        }
        let mut order = self.order.lock().unpoisoned();
        for chunk in chunks {
            if self.touched.set(chunk) {
                runs::push(&mut order, chunk..chunk + 1);
            }
        }
    }

    #[must_use]
    pub fn list(&self) -> AccessList {
        AccessList {
            identity: self.identity.clone(),
            chunk_size: self.geometry.chunk_size(),
            runs: self.order.lock().unpoisoned().clone(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn touches_become_a_text_and_come_back() {
        let geometry = Geometry::new(100 << 10, 1 << 10).unwrap();
        let recorder = AccessRecorder::new("sha256:x", geometry);
        for range in [5000..6000, 0..1, 5000..9000, 0..2048, 90_000..1 << 40, 7..7] {
            recorder.touch(&range);
        }
        let list = recorder.list();
        assert_eq!(list.runs(), [4..6, 0..1, 6..9, 1..2, 87..100]);
        assert_eq!(list.chunks(), 20);
        let text = list.to_text();
        let expected =
            "forerun access list 1\nimage: sha256:x\nchunk: 1024\n4-5\n0\n6-8\n1\n87-99\n";
        assert_eq!(text, expected);
        assert_eq!(AccessList::parse(text.as_bytes()).unwrap(), list);
    }

    #[test]
    fn lists_of_several_images_follow_each_other() {
        let one = "forerun access list 1\nimage: x\nchunk: 1024\n4-5\n0\n";
        let two = "forerun access list 1\nimage: y\nchunk: 4096\n";
        let lists = AccessList::parse_all(format!("{one}{two}{one}").as_bytes()).unwrap();
        let images: Vec<_> = lists.iter().map(|list| &*list.identity).collect();
        assert_eq!(images, ["x", "y", "x"]);
        assert_eq!(lists[0].to_text(), one);
        assert_eq!(lists[1].to_text(), two);
        let line = |text: String| match AccessList::parse_all(text.as_bytes()) {
            Err(CacheError::List { line, .. }) => line,
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(line(String::new()), 1);
        assert_eq!(line(format!("{one}{two}x\n{one}")), 9);
        assert_eq!(line(format!("{one}forerun access list 1\n{two}")), 7);
        assert_eq!(line(format!("x\n{one}")), 1);
    }

    #[test]
    fn a_list_fits_other_versions_and_chunk_sizes() {
        let list = b"forerun access list 1\nimage: x\nchunk: 1024\n4-5\n0\n87-99\n";
        let list = AccessList::parse(list).unwrap();
        let runs = |len, size| list.runs_for(&Geometry::new(len, size).unwrap());
        assert_eq!(runs(100 << 10, 1 << 10), [4..6, 0..1, 87..100]);
        assert_eq!(runs(90 << 10, 1 << 10), [4..6, 0..1, 87..90]);
        assert_eq!(runs(5 << 10, 4 << 10), [1..2, 0..1]);
        assert_eq!(runs(0, 4 << 10), []);
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        let line = |text: &str| match AccessList::parse(text.as_bytes()) {
            Err(CacheError::List { line, .. }) => line,
            other => panic!("{text:?}: {other:?}"),
        };
        let head = "forerun access list 1\nimage: x\nchunk: 1024\n";
        assert_eq!(line(""), 1);
        assert_eq!(line("forerun access list 2\n"), 1);
        assert_eq!(line("forerun access list 1\nchunk: 1024\n"), 2);
        assert_eq!(line("forerun access list 1\nimage: x\nchunk: 1000\n"), 3);
        for name in ["x\r\r", "x\ty", "\u{7f}"] {
            assert_eq!(
                line(&format!(
                    "forerun access list 1\nimage: {name}\nchunk: 1024\n"
                )),
                2
            );
        }
        for bad in [
            "x",
            "-1",
            "+1",
            "1-",
            "2-1",
            "1-2-3",
            "",
            " 1",
            "268435456",
            "99999999999999999999",
        ] {
            assert_eq!(line(&format!("{head}1\n{bad}\n")), 5, "{bad:?}");
        }
        assert_eq!(AccessList::parse(head.as_bytes()).unwrap().chunks(), 0);
        assert!(AccessList::parse(&[0xff]).is_err());
    }
}
