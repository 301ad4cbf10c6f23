//! Bytes on their way to the front end.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// What a read gives: a part of a cached block where one block holds it all, so that it is not
/// copied on the way, else bytes of its own.
#[derive(Clone)]
pub struct Data(Inner);

#[derive(Clone)]
enum Inner {
    Owned(Vec<u8>),
    Block(Arc<[u8]>, Range<usize>),
}

impl Data {
    pub(crate) const fn owned(bytes: Vec<u8>) -> Self {
        Self(Inner::Owned(bytes))
    }

    /// `range` of `block`, or nothing where it is not inside.
    pub(crate) fn block(block: Arc<[u8]>, range: Range<usize>) -> Option<Self> {
        block.get(range.clone())?;
        Some(Self(Inner::Block(block, range)))
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Owned(bytes) => bytes,
            // In range since the constructor.
            Inner::Block(block, range) => block.get(range.clone()).unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Data({} bytes)", self.len())
    }
}
