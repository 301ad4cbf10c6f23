//! Host files with holes: only their data is read, and a writer can skip the holes.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use forerun_io::{u64_from, usize_from};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::stream::ContentStream;

/// Unit of a file's block count in bytes.
const BLOCK: u64 = 512;

/// A file with fewer allocated bytes than its length, read from its start.
#[derive(Debug)]
pub struct SparseFile {
    file: File,
    at: u64,
    /// The data range found by the last search. If no data follows, it is empty at the end of the
    /// file.
    data: Range<u64>,
}

impl SparseFile {
    /// Wraps a file that may have holes. Returns the file unchanged if its allocated blocks cover
    /// its length. A compressed file also looks sparse; then the search for holes finds none.
    pub fn new(file: File) -> io::Result<Result<Self, File>> {
        let metadata = file.metadata()?;
        if metadata.blocks() * BLOCK >= metadata.len() {
            return Ok(Err(file));
        }
        let (at, data) = (0, 0..0);
        Ok(Ok(Self { file, at, data }))
    }

    fn find_data(&self) -> io::Result<Range<u64>> {
        match seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(start) => {
                let end = seek(&self.file, SeekFrom::Hole(start))?;
                Ok(start..end.max(start))
            }
            // No data follows: the rest is a hole.
            Err(Errno::NXIO) => {
                let end = self.file.metadata()?.len();
                Ok(end..end)
            }
            // The filesystem does not support holes.
            Err(Errno::INVAL) => Ok(self.at..u64::MAX),
            Err(error) => Err(error.into()),
        }
    }
}

impl ContentStream for SparseFile {
    fn hole(&mut self) -> io::Result<u64> {
        if self.at >= self.data.end {
            self.data = self.find_data()?;
        }
        Ok(self.data.start.saturating_sub(self.at))
    }

    fn skip(&mut self, len: u64) {
        self.at += len;
    }

    fn next_data(&mut self) -> io::Result<Option<Range<u64>>> {
        self.hole()?;
        Ok(Some(self.data.start.max(self.at)..self.data.end))
    }

    fn skip_to(&mut self, at: u64) {
        self.at = at;
    }
}

impl Read for SparseFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let hole = self.hole()?;
        let want = |len: u64| usize_from(len).min(out.len());
        if hole > 0 {
            let zeros = want(hole);
            out.iter_mut().take(zeros).for_each(|byte| *byte = 0);
            self.at += u64_from(zeros);
            return Ok(zeros);
        }
        let len = want(self.data.end.saturating_sub(self.at));
        let got = self.file.read_at(&mut out[..len], self.at)?;
        self.at += u64_from(got);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_testkit::temp_dir;

    use super::*;
    use crate::{Content, ExactStream, HostFile};

    const MIB: u64 = 1 << 20;

    /// Creates a file of `len` bytes with data at some offsets.
    fn sparse(len: u64, data: &[(u64, &[u8])]) -> (forerun_testkit::TempDir, Content) {
        let dir = temp_dir("sparse");
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(len).unwrap();
        for (at, bytes) in data {
            file.write_all_at(bytes, *at).unwrap();
        }
        file.sync_all().unwrap();
        let metadata = fs::metadata(&path).unwrap();
        (dir, Content::Host(HostFile::named(path, &metadata)))
    }

    /// Returns the number of bytes that this thread has read by system calls.
    fn read_by_thread() -> u64 {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn contents_are_those_of_the_file() {
        let word = b"a word".as_slice();
        for places in [&[][..], &[0], &[MIB + 17], &[0, 4096, 3 * MIB, 7 * MIB - 6]] {
            let data: Vec<_> = places.iter().map(|&at| (at, word)).collect();
            let (_dir, content) = sparse(7 * MIB, &data);
            let mut expected = vec![0; 7 << 20];
            for (at, bytes) in data {
                let at = usize_from(at);
                expected[at..at + bytes.len()].copy_from_slice(bytes);
            }
            let whole = crate::read_whole(&content, 7 * MIB).unwrap();
            assert!(whole == expected, "{places:?}");
            let mut stream = ExactStream::open(&content, 7 * MIB).unwrap();
            let mut out = Vec::new();
            while stream.left() > 0 {
                let hole = stream.hole().unwrap().min(100_000);
                if hole > 5000 {
                    stream.skip(hole).unwrap();
                    out.resize(out.len() + usize_from(hole), 0);
                } else {
                    out.extend(stream.read(3000).unwrap());
                }
            }
            assert!(out == expected, "{places:?}");
        }
    }

    #[test]
    fn holes_are_not_read() {
        let (_dir, content) = sparse(8 << 30, &[(5 << 30, b"data")]);
        let mut stream = ExactStream::open(&content, 8 << 30).unwrap();
        let before = read_by_thread();
        let mut found = Vec::new();
        while stream.left() > 0 {
            match stream.hole().unwrap() {
                0 => found.extend(stream.read(MIB).unwrap()),
                hole => stream.skip(hole).unwrap(),
            }
        }
        assert!(found.starts_with(b"data"));
        // The data, one filesystem block per range, and the read of the counter itself.
        let read = read_by_thread() - before;
        assert!(read <= 2 * MIB, "{read}");

        let (_dir, content) = sparse(64 << 20, &[]);
        let before = read_by_thread();
        let mut stream = content.open(64 << 20).unwrap();
        assert_eq!(io::copy(&mut stream, &mut io::sink()).unwrap(), 64 << 20);
        let read = read_by_thread() - before;
        assert!(read <= 4096, "{read}");
    }

    #[test]
    fn a_file_that_changed_its_length_is_noticed() {
        for (len, is_longer) in [(3 * MIB, true), (5 * MIB, false)] {
            let (_dir, content) = sparse(4 * MIB, &[]);
            let mut stream = ExactStream::open(&content, len).unwrap();
            let hole = stream.hole().unwrap();
            let skipped = stream.skip(hole);
            let outcome = match stream.left() {
                0 => skipped.map(|()| Vec::new()),
                left => stream.read(left),
            };
            let error = outcome.unwrap_err();
            let is_as_expected = match error {
                crate::Unreadable::Longer => is_longer,
                crate::Unreadable::Shorter => !is_longer,
                crate::Unreadable::Io(_) => false,
            };
            assert!(is_as_expected, "{len}: {error:?}");
        }
    }

    #[test]
    fn a_file_without_holes_is_read_as_usual() {
        let dir = temp_dir("dense");
        fs::write(dir.path().join("file"), vec![7; 10_000]).unwrap();
        let file = File::open(dir.path().join("file")).unwrap();
        file.sync_all().unwrap();
        assert!(SparseFile::new(file).unwrap().is_err());
    }
}
