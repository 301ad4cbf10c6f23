//! The environment variables that the program reads, for the man pages. Variables that processes of
//! a mount pass to each other are omitted.

pub struct Variable {
    pub name: &'static str,
    pub effect: &'static str,
    commands: Commands,
}

enum Commands {
    All,
    Remote,
    Named(&'static [&'static str]),
}

use Commands::{All, Named, Remote};

const MOUNTS: Commands = Named(&["mount", "umount", "status", "restart"]);

const VARIABLES: &[Variable] = &[
    variable(
        "TMPDIR",
        "Directory for temporary files, such as copies of pipes.",
        All,
    ),
    variable(
        "NO_COLOR",
        "If set, messages about the command line have no colours.",
        All,
    ),
    variable(
        "TZ",
        "Time zone of printed times, and of the mount option sys_tz.",
        Named(&["ls", "mount"]),
    ),
    variable(
        "SOURCE_DATE_EPOCH",
        "Seconds since 1970. Later times in an output become this one.",
        Named(&["pack", "convert", "tar"]),
    ),
    variable(
        "XDG_RUNTIME_DIR",
        "Directory for the sockets of mounts, in its subdirectory forerun.",
        MOUNTS,
    ),
    variable(
        "XDG_STATE_HOME",
        "Directory for undo files of block devices, in its subdirectory forerun [default: ~/.local/state].",
        Named(&["check"]),
    ),
    variable(
        "XDG_CACHE_HOME",
        "Directory for the cache of images at servers, in its subdirectory forerun [default: ~/.cache].",
        Remote,
    ),
    variable(
        "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY",
        "Proxies for requests, also in lower case. Servers on this machine are contacted directly.",
        Remote,
    ),
    variable("NO_PROXY", "Hosts that are contacted directly.", Remote),
    variable(
        "SSL_CERT_FILE, SSL_CERT_DIR",
        "Certificates to trust, in place of the system's.",
        Remote,
    ),
    variable(
        "FORERUN_CA_FILE",
        "More certificates to trust, if --ca-file is not given.",
        Remote,
    ),
    variable(
        "REGISTRY_AUTH_FILE",
        "File with passwords of registries, as podman login writes it. Read first.",
        Remote,
    ),
    variable(
        "DOCKER_CONFIG",
        "Directory with the file config.json of docker login. Read second.",
        Remote,
    ),
    variable(
        "XDG_CONFIG_HOME",
        "Directory with containers/auth.json, a file with passwords of registries [default: ~/.config].",
        Remote,
    ),
    variable(
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
        "Keys for s3:// names.",
        Remote,
    ),
    variable(
        "AWS_PROFILE, AWS_DEFAULT_PROFILE",
        "Profile with the keys [default: default].",
        Remote,
    ),
    variable(
        "AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE",
        "Files of profiles [default: ~/.aws/credentials and ~/.aws/config].",
        Remote,
    ),
    variable(
        "AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL",
        "Region and address of the object store.",
        Remote,
    ),
    variable(
        "AWS_WEB_IDENTITY_TOKEN_FILE, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "Other sources of keys, as for the AWS tools.",
        Remote,
    ),
];

const fn variable(name: &'static str, effect: &'static str, commands: Commands) -> Variable {
    Variable {
        name,
        effect,
        commands,
    }
}

/// Returns the variables that affect a command, or all of them for the program. `is_remote` means
/// that the command reads remote images.
pub fn variables(
    command: Option<&str>,
    is_remote: bool,
) -> impl Iterator<Item = &'static Variable> {
    VARIABLES
        .iter()
        .filter(move |variable| match (&variable.commands, command) {
            (Remote, None) => cfg!(feature = "network"),
            (_, None) | (All, _) => true,
            (Remote, _) => is_remote,
            (Named(names), Some(command)) => names.contains(&command),
        })
}
