//! Files of access lists, to record or to prefetch. A file may list the chunks of one image or of
//! all layers of an image.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forerun_cache::{AccessList, AccessRecorder, Geometry};
use forerun_io::{OutputFile, Unpoisoned};

use crate::{Prefetch, RemoteError, RemoteOptions, Result};

pub struct RecordFile {
    path: PathBuf,
    recorders: Mutex<Vec<Arc<AccessRecorder>>>,
    /// Number of open images that record into the file. The last one saves it.
    open: AtomicUsize,
}

pub struct Recorder {
    touched: Arc<AccessRecorder>,
    file: Arc<RecordFile>,
    /// Whether recording has begun. Reads that open a layer are not recorded, because opening may
    /// read the whole layer.
    is_begun: AtomicBool,
}

impl RecordFile {
    /// Returns the file that the options name. It is written later.
    pub fn of(options: &RemoteOptions) -> Option<Arc<Self>> {
        let path = options.record.clone()?;
        Some(Arc::new(Self {
            path,
            recorders: Mutex::default(),
            open: AtomicUsize::new(0),
        }))
    }

    pub fn recorder(self: &Arc<Self>, identity: &str, geometry: Geometry) -> Recorder {
        self.open.fetch_add(1, Ordering::AcqRel);
        let touched = Arc::new(AccessRecorder::new(identity, geometry));
        self.recorders
            .lock()
            .unpoisoned()
            .push(Arc::clone(&touched));
        Recorder {
            touched,
            file: Arc::clone(self),
            is_begun: AtomicBool::new(false),
        }
    }
}

impl Recorder {
    pub fn begin(&self) {
        self.is_begun.store(true, Ordering::Release);
    }

    pub fn touch(&self, bytes: &std::ops::Range<u64>) {
        if self.is_begun.load(Ordering::Acquire) {
            self.touched.touch(bytes);
        }
    }

    pub fn list(&self) -> AccessList {
        self.touched.list()
    }

    pub fn save(&self) -> io::Result<()> {
        let mut file = OutputFile::Replace.open(&self.file.path)?;
        for recorder in &*self.file.recorders.lock().unpoisoned() {
            file.write_all(recorder.list().to_text().as_bytes())?;
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The last image saves for all, because there may be many.
        if self.file.open.fetch_sub(1, Ordering::AcqRel) == 1
            && let Err(error) = self.save()
        {
            tracing::warn!(%error, "the access list could not be written");
        }
    }
}

pub fn access_list(path: &Path) -> Result<AccessList> {
    read(path, AccessList::parse)
}

pub fn access_lists(path: &Path) -> Result<Vec<AccessList>> {
    read(path, AccessList::parse_all)
}

pub fn prefetched(options: &RemoteOptions) -> Result<Vec<AccessList>> {
    match &options.prefetch {
        Prefetch::List(path) => access_lists(path),
        Prefetch::None | Prefetch::All => Ok(Vec::new()),
    }
}

pub fn find(lists: &[AccessList], identity: &str) -> Option<AccessList> {
    lists.iter().find(|list| list.identity == identity).cloned()
}

/// The access lists of one image: one to prefetch, one to record.
#[derive(Default)]
pub struct Listing {
    pub list: Option<AccessList>,
    pub record: Option<Arc<RecordFile>>,
}

impl Listing {
    /// Returns the lists of an image that is not a layer. If the file has a single list, it is used
    /// for any version of the image.
    pub fn of_image(options: &RemoteOptions, identity: &str) -> Result<Self> {
        let mut lists = prefetched(options)?;
        let list = match lists.len() {
            1 => lists.pop(),
            _ => find(&lists, identity),
        };
        let record = RecordFile::of(options);
        Ok(Self { list, record })
    }
}

fn read<T>(path: &Path, parse: impl Fn(&[u8]) -> forerun_cache::Result<T>) -> Result<T> {
    let bad = |reason: String| RemoteError::Reference {
        text: path.display().to_string(),
        reason,
    };
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    parse(&text).map_err(|error| bad(error.to_string()))
}
