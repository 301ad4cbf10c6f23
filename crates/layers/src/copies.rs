//! Files of which overlayfs copied up only the metadata, and the files of lower layers that have
//! their contents.
//!
//! The place of the contents depends on the path of the file, which is not part of its id. A lookup
//! knows the path. A file that was only listed is found by one search of all directories of the
//! upper layers.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_io::{Limits, Unpoisoned as _};
use forerun_vfs::{Error, FileType, Held, Result};

use crate::check::MarkerCheck;
use crate::follow;
use crate::ids::LayerNode;
use crate::stack::Stack;

/// Bytes that a file takes in the table.
const ENTRY_LEN: usize = 2 * size_of::<(LayerNode, Result<Option<LayerNode>>)>();

/// The files that are known to have only metadata, and where their contents are.
pub struct Copies {
    found: Mutex<HashMap<LayerNode, Result<Option<LayerNode>>>>,
    held: Mutex<Held>,
    pub is_complete: AtomicBool,
}

impl Copies {
    /// Creates an empty table, of at most [`Limits::walk_bytes`].
    pub fn new(limits: &Limits) -> Self {
        Self {
            found: Mutex::default(),
            held: Mutex::new(Held::new(limits)),
            is_complete: AtomicBool::new(false),
        }
    }

    /// Records where the contents of `at` are, if only its metadata is in its layer. The file is
    /// `name` in the directory merged from `dirs`. Fails with [`Error::Io`], or [`Error::Limit`] if
    /// there are too many such files.
    pub fn note(
        &self,
        stack: &Stack,
        dirs: &[LayerNode],
        (name, at): (&[u8], LayerNode),
    ) -> Result<()> {
        // A file that is reached by a hard link of another layer has another path than this one.
        if !stack.is_copy(at)? || stack.links().leads_to(at) || self.get(at).is_some() {
            return Ok(());
        }
        let Some(index) = dirs.iter().position(|dir| dir.layer == at.layer) else {
            return Ok(());
        };
        let found = follow::contents(stack, &dirs[index + 1..], at, name);
        if let Err(error @ Error::Io { .. }) = found {
            return Err(error);
        }
        self.held.lock().unpoisoned().add(ENTRY_LEN)?;
        self.found.lock().unpoisoned().insert(at, found);
        Ok(())
    }

    fn get(&self, at: LayerNode) -> Option<Result<Option<LayerNode>>> {
        self.found.lock().unpoisoned().get(&at).cloned()
    }

    /// Returns the file with the contents of `at`: `at` itself, unless overlayfs copied up only its
    /// metadata. `search` records all such files.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no layer has the contents, or only contents of another length; the
    /// errors of the layers.
    pub fn contents(
        &self,
        stack: &Stack,
        at: LayerNode,
        search: impl FnOnce() -> Result<()>,
    ) -> Result<LayerNode> {
        if !stack.is_copy(at)? {
            return Ok(at);
        }
        let found = match self.get(at) {
            None if !self.is_complete.load(Ordering::Acquire) => {
                search()?;
                self.get(at)
            }
            found => found,
        };
        let found = found.unwrap_or(Ok(None))?;
        let found = found.ok_or_else(|| stack.failed(at, MarkerCheck::NoContents))?;
        let (size, found_size) = (stack.metadata(at)?.size, stack.metadata(found)?.size);
        if size != found_size {
            let check = MarkerCheck::ContentsLen {
                found: found_size,
                size,
            };
            return Err(stack.failed(at, check));
        }
        Ok(found)
    }
}

impl Stack {
    /// Returns whether a node is a file of which overlayfs copied up only the metadata. In the
    /// lowest layer, the driver refuses such a file.
    pub fn is_copy(&self, at: LayerNode) -> Result<bool> {
        if at.layer == 0 || !self.may_have_xattrs(at.layer) {
            return Ok(false);
        }
        let number = crate::ids::Named::Single(at).id()?.0;
        let has = self
            .own_contents()
            .has(number, |visit| self.xattrs(at, visit))?;
        Ok(!has && self.metadata(at)?.kind == FileType::Regular)
    }
}
