//! Stored credentials: files with passwords for web servers, and the files of docker and podman for
//! registries.

pub mod docker_config;
pub mod files;
mod helper;
pub mod secret;
