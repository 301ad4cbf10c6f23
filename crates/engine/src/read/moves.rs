use std::sync::Arc;

use super::decoded::Decoded;
use super::stored::Stored;
use crate::pool::Pool;

/// The sources and caches through which bytes move, shared with the jobs of the pool.
pub struct Moves {
    pub stored: Stored,
    pub decoded: Decoded,
    pub pool: Arc<Pool>,
}
