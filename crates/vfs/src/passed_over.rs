//! Bad entries of a listing: the listing shows all other entries, and ends with an error.

use crate::{Error, Result};

/// Most bad entries of a listing. Directories of a hostile image may overlap, and each could hold
/// as many entries as the largest.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub struct PassedOver {
    first: Option<Error>,
    count: usize,
}

impl PassedOver {
    /// Records a bad entry, which the listing skips.
    ///
    /// # Errors
    /// `error` itself if it is not damage, and the first one after too many.
    pub fn add(&mut self, error: Error) -> Result<()> {
        if !matches!(error, Error::Corrupt(_)) {
            return Err(error);
        }
        self.count += 1;
        let first = self.first.get_or_insert(error);
        if self.count < MOST {
            Ok(())
        } else {
            Err(first.clone())
        }
    }

    /// Ends the listing.
    ///
    /// # Errors
    /// The first recorded error.
    pub fn end(self) -> Result<()> {
        self.first.map_or(Ok(()), Err)
    }
}
