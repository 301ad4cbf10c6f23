//! Reads what a driver wrote to the kernel log during a mount attempt.
//!
//! Drivers write most of their reasons there and return only EINVAL to the caller. Root can read
//! `/dev/kmsg` from the moment the attempt began. Without access to it, errors lack these reasons.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Maximum number of records read, so that a busy log does not delay the mount.
const MOST_RECORDS: usize = 256;
const RECORD_LEN: usize = 8192;

/// Number of severity levels. A record's priority is `facility * 8 + level`.
const LEVELS: u32 = 8;
/// The least severe level that counts as a problem (`LOG_WARNING`).
const WARNING: u32 = 4;

/// A position in the kernel log.
#[derive(Debug)]
pub struct KernelLog {
    file: Option<File>,
}

impl KernelLog {
    pub fn now() -> Self {
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let flags = i32::try_from(flags).unwrap_or(0);
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open("/dev/kmsg")
            .and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file))
            .ok();
        Self { file }
    }

    /// Returns the messages of driver `fstype` since this position, without duplicates.
    pub fn words(mut self, fstype: &str) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let Some(file) = &mut self.file else {
            return words;
        };
        let mut record = vec![0; RECORD_LEN];
        for _ in 0..MOST_RECORDS {
            // EPIPE: records were overwritten before they were read. The next read continues.
            let len = match file.read(&mut record) {
                Ok(len) if len > 0 => len,
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => continue,
                _ => break,
            };
            if let Some(said) = record.get(..len).and_then(|text| parse(text, fstype))
                && !words.contains(&said)
            {
                words.push(said);
            }
        }
        words
    }
}

/// Returns the text of a record `level,number,time,flags;text` if driver `fstype` reports a
/// problem.
fn parse(record: &[u8], fstype: &str) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (head, text) = text.split_once(';')?;
    let level: u32 = head.split(',').next()?.parse().ok()?;
    if level % LEVELS > WARNING {
        return None;
    }
    let text = text.lines().next()?.trim();
    let is_driver = text
        .get(..fstype.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(fstype));
    is_driver.then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_driver_says() {
        for (record, expected) in [
            (
                "3,12,99,-;erofs (device erofs): blkszbits 16 isn't supported\n SUBSYSTEM=x\n",
                Some("erofs (device erofs): blkszbits 16 isn't supported"),
            ),
            ("4,12,99,-;EROFS: odd", Some("EROFS: odd")),
            ("28,12,99,-;erofs: odd", Some("erofs: odd")),
            ("6,12,99,-;erofs (device x): mounted with root", None),
            ("4,12,99,-;loop0: detected", None),
            ("4,12,99,-;ero", None),
            ("nothing", None),
            ("", None),
        ] {
            let words = parse(record.as_bytes(), "erofs");
            assert_eq!(words.as_deref(), expected, "{record}");
        }
    }
}
