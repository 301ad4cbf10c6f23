//! Converts between gRPC messages and the snapshotter's types.

use tonic::Status;

use super::messages::{Empty, UsageResponse};
use super::messages::{InfoMessage, InfoResponse, MountMessage, MountsResponse, Timestamp};
use crate::Error;
use crate::overlay::Mount;
use crate::record::{Kind, Moment, Usage};
use crate::snapshotter::Described;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::NotFound(_) => Self::not_found(text),
            Error::Exists(_) => Self::already_exists(text),
            Error::State { .. } => Self::failed_precondition(text),
            Error::Request(_) => Self::invalid_argument(text),
            Error::Image { .. } => Self::unavailable(text),
            Error::Io { .. } | Error::Record { .. } | Error::Root { .. } | Error::Serve(_) => {
                Self::internal(text)
            }
        }
    }
}

impl From<Vec<Mount>> for MountsResponse {
    fn from(mounts: Vec<Mount>) -> Self {
        let mounts = mounts.into_iter().map(|mount| MountMessage {
            kind: mount.kind.to_owned(),
            source: mount.source,
            options: mount.options,
        });
        Self {
            mounts: mounts.collect(),
        }
    }
}

impl From<Described> for InfoMessage {
    fn from(described: Described) -> Self {
        let Described { snapshot, parent } = described;
        Self {
            name: snapshot.name,
            parent,
            kind: match snapshot.kind {
                Kind::View => 1,
                Kind::Active => 2,
                Kind::Committed => 3,
            },
            created_at: Some(snapshot.created.into()),
            updated_at: Some(snapshot.updated.into()),
            labels: snapshot.labels,
        }
    }
}

impl From<Described> for InfoResponse {
    fn from(described: Described) -> Self {
        Self {
            info: Some(described.into()),
        }
    }
}

impl From<Moment> for Timestamp {
    fn from(moment: Moment) -> Self {
        Self {
            seconds: i64::try_from(moment.seconds).unwrap_or(i64::MAX),
            nanos: i32::try_from(moment.nanos).unwrap_or(0),
        }
    }
}

impl From<Usage> for UsageResponse {
    fn from(usage: Usage) -> Self {
        Self {
            size: i64::try_from(usage.bytes).unwrap_or(i64::MAX),
            inodes: i64::try_from(usage.inodes).unwrap_or(i64::MAX),
        }
    }
}

impl From<()> for Empty {
    fn from((): ()) -> Self {
        Self {}
    }
}
