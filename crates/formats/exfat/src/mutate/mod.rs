//! Changes of a volume, one kind in each file. Each takes the clusters and slots that it needs
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
