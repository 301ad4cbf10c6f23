//! Users and passwords that the user has stored: for web servers in files, for registries as docker and podman do.

pub mod docker_config;
pub mod files;
mod helper;
pub mod secret;
