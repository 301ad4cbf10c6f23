//! Changes of a volume, one kind a file. Each takes what it needs of the volume - clusters, slots -
//! before it changes anything, so that a full volume is left as it was.

mod attributes;
mod create;
mod data;
mod forget;
mod label;
mod moves;
mod remove;
mod rename;
mod resize;
mod room;
mod set;
mod trim;
