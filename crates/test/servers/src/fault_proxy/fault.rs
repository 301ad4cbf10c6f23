//! The faults of an answer, and how a test chooses them.

use std::collections::HashMap;
use std::fmt;

use super::Exchange;

/// How one answer is spoilt. Offsets and counts are of the answer's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is reset, and nothing answered. The server never saw the request.
    ResetBeforeHead,
    /// The connection is reset in the body, or right after the head.
    ResetAt {
        /// After so many bytes.
        after: u64,
    },
    /// The connection is closed before the body has the length that was announced.
    Truncate {
        /// After so many bytes.
        after: u64,
    },
    /// Some bytes are others: each of their bits is.
    WrongBytes {
        /// The first of them.
        offset: u64,
        len: u64,
    },
    /// Another answer than the server's, without a body.
    Status {
        /// 429, 500, 503 and so on.
        code: u16,
        /// Seconds, as `Retry-After`.
        retry_after: Option<u64>,
    },
    /// No answer until the client gives up.
    Stall,
    /// No more of the body until the client gives up.
    StallAt {
        /// After so many bytes.
        after: u64,
    },
    /// `Content-Range` says that the body begins one byte further on than it does.
    WrongContentRange,
    /// `Content-Range` says that the whole is one byte longer than it is.
    WrongTotal,
    /// 200 and the whole, though a part was asked for.
    Whole,
    /// A part that says of itself that it is shorter than was asked for, which HTTP allows.
    Short { len: u64 },
    /// 307 to somewhere else.
    Redirect { location: String },
    /// Bytes that are not HTTP, then the end of the connection.
    Garbage,
}

/// Chooses faults by what is asked.
type Choose = Box<dyn Fn(&Exchange) -> Option<Fault> + Send>;

/// Which requests are answered wrongly.
#[derive(Default)]
pub struct Faults {
    pub at: HashMap<usize, Fault>,
    pub choose: Option<Choose>,
}

impl Faults {
    /// Returns the fault for a request.
    pub fn of(&self, request: &Exchange) -> Option<Fault> {
        let by_number = self.at.get(&request.number).cloned();
        by_number.or_else(|| self.choose.as_ref()?(request))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choose = self.choose.as_ref().map(|_| "by a function");
        write!(f, "Faults({:?}, {choose:?})", self.at)
    }
}
