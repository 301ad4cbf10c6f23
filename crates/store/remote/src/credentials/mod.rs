//! Stored users and passwords: in files for web servers, in the files of docker and podman for registries.

pub mod docker_config;
pub mod files;
mod helper;
pub mod secret;
