//! The messages of `containerd.services.snapshots.v1`, with the field numbers of `snapshots.proto`.
//!
//! Written by hand, because generating the few messages would need a protobuf compiler at build
//! time. Unused fields, such as the snapshotter's name in every request, are omitted and skipped
//! when received.

use std::collections::BTreeMap;

use prost::Message;

/// Request of `Prepare` and `View`.
#[derive(Clone, PartialEq, Message)]
pub struct PrepareRequest {
    #[prost(string, tag = "2")]
    pub key: String,
    #[prost(string, tag = "3")]
    pub parent: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
}

/// Request of several calls that take only the key of a snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct KeyRequest {
    #[prost(string, tag = "2")]
    pub key: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct MountsResponse {
    #[prost(message, repeated, tag = "1")]
    pub mounts: Vec<MountMessage>,
}

/// `containerd.types.Mount`.
#[derive(Clone, PartialEq, Message)]
pub struct MountMessage {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub source: String,
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CommitRequest {
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InfoMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub parent: String,
    /// 1: view, 2: active, 3: committed.
    #[prost(int32, tag = "3")]
    pub kind: i32,
    #[prost(message, optional, tag = "4")]
    pub created_at: Option<Timestamp>,
    #[prost(message, optional, tag = "5")]
    pub updated_at: Option<Timestamp>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Response of `Stat` and `Update`: one snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct InfoResponse {
    #[prost(message, optional, tag = "1")]
    pub info: Option<InfoMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct UpdateRequest {
    #[prost(message, optional, tag = "2")]
    pub info: Option<InfoMessage>,
    #[prost(message, optional, tag = "3")]
    pub update_mask: Option<FieldMask>,
}

/// `google.protobuf.FieldMask`.
#[derive(Clone, PartialEq, Message)]
pub struct FieldMask {
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListRequest {
    #[prost(string, repeated, tag = "2")]
    pub filters: Vec<String>,
}

/// A part of the response stream of `List`.
#[derive(Clone, PartialEq, Message)]
pub struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub info: Vec<InfoMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct UsageResponse {
    #[prost(int64, tag = "1")]
    pub size: i64,
    #[prost(int64, tag = "2")]
    pub inodes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct CleanupRequest {}

/// `google.protobuf.Empty`.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}
