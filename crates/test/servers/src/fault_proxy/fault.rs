//! The faults of an answer, and how a test chooses them.

use std::collections::HashMap;
use std::fmt;

use super::Exchange;

/// How one answer is altered. Offsets and counts refer to the answer's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is reset without an answer. The server never sees the request.
    ResetBeforeHead,
    /// The connection is reset in the body, or right after the head.
    ResetAt {
        /// Bytes sent before.
        after: u64,
    },
    /// The connection is closed before the announced length.
    Truncate {
        /// Bytes sent before.
        after: u64,
    },
    /// Some bytes are inverted.
    WrongBytes {
        /// The first of them.
        offset: u64,
        len: u64,
    },
    /// An answer other than the server's, without a body.
    Status {
        /// 429, 500, 503 and so on.
        code: u16,
        /// `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// No answer until the client gives up.
    Stall,
    /// No more of the body until the client gives up.
    StallAt {
        /// Bytes sent before.
        after: u64,
    },
    /// `Content-Range` gives an offset that is one byte too high.
    WrongContentRange,
    /// `Content-Range` gives a total length that is one byte too high.
    WrongTotal,
    /// 200 and the whole, although a part was requested.
    Whole,
    /// A part whose head says that it is shorter than requested, which HTTP allows.
    Short { len: u64 },
    /// 307 to another address.
    Redirect { location: String },
    /// Bytes that are not HTTP, then the end of the connection.
    Garbage,
}

type Choose = Box<dyn Fn(&Exchange) -> Option<Fault> + Send>;

#[derive(Default)]
pub struct Faults {
    pub at: HashMap<usize, Fault>,
    pub choose: Option<Choose>,
}

impl Faults {
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
