//! Files that the sandbox must allow, because opening an image reads them.

use std::path::{Path, PathBuf};

use crate::credentials::docker_config;
use crate::http::client::CA_FILE_VARIABLE;
use crate::origin::aws_profile;

use super::registry::RegistryOptions;
use super::{Prefetch, RemoteOptions};

impl RemoteOptions {
    /// Returns the files and directories that may be read while an image is in use, besides those
    /// of the system: credentials, certificates, access lists. For credentials of registries it
    /// returns the directories, since a replaced file has another inode. For passwords of web
    /// servers it returns the files themselves, because their directory is often the home
    /// directory.
    #[must_use]
    pub fn reads(&self) -> Vec<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut files = self.registry.credential_files();
        files.extend(aws_profile::files());
        files.extend(set("AWS_WEB_IDENTITY_TOKEN_FILE").map(PathBuf::from));
        let parents = files.iter().filter_map(|file| file.parent());
        let mut reads: Vec<_> = parents.map(Path::to_path_buf).collect();
        reads.extend(self.credentials.files().filter(|file| file.exists()));
        reads.extend(self.ca_file.clone());
        for variable in [CA_FILE_VARIABLE, "SSL_CERT_FILE", "SSL_CERT_DIR"] {
            reads.extend(set(variable).map(PathBuf::from));
        }
        if let Prefetch::List(file) = &self.prefetch {
            reads.push(file.clone());
        }
        reads.extend(self.layer_index.clone());
        reads
    }
}

impl RegistryOptions {
    /// Returns the files that may contain credentials of registries.
    #[must_use]
    pub fn credential_files(&self) -> Vec<PathBuf> {
        let given = self.auth_files.clone();
        given.unwrap_or_else(docker_config::usual_files)
    }

    /// Returns whether one of the files names a credential helper, which is a program to run.
    #[must_use]
    pub fn runs_programs(&self) -> bool {
        docker_config::name_a_helper(&self.credential_files())
    }
}
