//! Changes a volume, one kind of change per file. Each change allocates its clusters and slots
//! before it changes anything, so that a full volume stays unchanged.

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
