//! Arguments for remote images.

#[cfg(feature = "snapshotter")]
use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use forerun::unstable::remote::{Platform, Prefetch, Readahead, RemoteOptions};

use crate::error::reason;
use crate::size;

/// How an image at a server is fetched.
#[derive(Args, Clone, Debug, Default)]
pub struct RemoteArgs {
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Use the cache only; never contact a server
    #[arg(help_heading = "Images at servers", long)]
    pub offline: bool,
    /// Refuse images without digests, because forerun cannot verify their data before use
    #[arg(help_heading = "Images at servers", long)]
    pub require_verified: bool,
    /// Platform of a container image, such as linux/arm64/v8 [default: the platform of this
    /// machine]
    #[arg(
        help_heading = "Images at servers",
        long,
        value_name = "OS/ARCH[/VARIANT]"
    )]
    pub platform: Option<Platform>,
    /// Use only the lowest N layers of a container image
    #[arg(help_heading = "Images at servers", long, value_name = "N")]
    pub first_layers: Option<NonZeroUsize>,
    /// Do not verify data in the cache before it is used
    #[arg(help_heading = "Images at servers", long)]
    pub trust_cache: bool,
    /// Fetch data ahead of readers [default: async]
    #[arg(help_heading = "Images at servers", long, value_name = "MODE")]
    pub fetch_ahead: Option<FetchAhead>,
    /// Fetch in the background before readers ask: nothing, everything, or the chunks in the access
    /// list FILE [default: none]
    #[arg(help_heading = "Images at servers", long, value_name = "none|all|FILE")]
    pub prefetch: Option<PathBuf>,
    /// Open a container image with the layer indexes in FILE, made by forerun index, without
    /// fetching its layers first. forerun trusts them: use only a file that no other user can
    /// change
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "require_verified")]
    pub layer_index: Option<PathBuf>,
    /// Use the layer indexes and access lists that forerun index --push or soci push stored in the
    /// registry. forerun trusts them, although everyone who can push to the repository, and every
    /// mirror, can replace them
    #[arg(help_heading = "Images at servers", long)]
    pub referrers: bool,
    /// Write an access list for --prefetch to FILE: the chunks that were used, in the order of
    /// first use
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
}

/// Where chunks are kept.
#[derive(Args, Clone, Debug, Default)]
pub struct CacheArgs {
    /// Cache directory [default: $XDG_CACHE_HOME/forerun or ~/.cache/forerun]
    #[arg(help_heading = "Images at servers", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// Size limit of the cache, or none for no limit; images in use are kept [default: a tenth of
    /// the filesystem, or less to keep a twentieth free]
    #[arg(help_heading = "Images at servers", long, value_name = "BYTES", value_parser = limit)]
    pub cache_limit: Option<u64>,
}

/// How servers are spoken to.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// Another address of the image, used if the first one fails; for oci:// names, a registry that
    /// is asked before the real one. Repeat for more. @FILE has one address on each line, and is
    /// read again on SIGHUP
    #[arg(
        help_heading = "Images at servers",
        long = "mirror",
        value_name = "URL|@FILE", value_parser = Mirrors::parse)]
    pub mirrors: Vec<Mirrors>,
    /// Seconds to wait for data before a read fails [default: 30]
    #[arg(help_heading = "Images at servers", long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// Repeat a failed request up to N times [default: 5]
    #[arg(help_heading = "Images at servers", long, value_name = "N")]
    pub retries: Option<u32>,
    /// Read passwords of web servers from FILE: lines of https://USER:PASSWORD@HOST, as git
    /// credential-store writes them. Other users must not be able to read FILE
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub credentials_file: Option<PathBuf>,
    /// Read passwords of web servers from FILE, in netrc format [default: ~/.netrc]
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub netrc_file: Option<PathBuf>,
    /// Also trust the certificates in this PEM file
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
    /// Use plain HTTP for this server; repeat for more. Loopback addresses are always allowed
    #[arg(help_heading = "Images at servers", long, value_name = "HOST[:PORT]")]
    pub plain_http: Vec<String>,
}

/// How to fetch ahead of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FetchAhead {
    /// Fetch in the background, in growing windows
    Async,
    /// Fetch only what readers request
    Off,
}

impl RemoteArgs {
    /// Reads the files of mirrors again, as [`ServerArgs::reread`] does.
    pub fn reread(&mut self) -> Result<(), String> {
        self.server.reread()
    }

    /// Turns off fetching ahead of readers, unless the user asked for it.
    pub fn fetch_nothing_ahead(&mut self) {
        self.fetch_ahead.get_or_insert(FetchAhead::Off);
    }

    pub fn fetches_ahead(&self) -> bool {
        self.fetch_ahead != Some(FetchAhead::Off)
    }

    pub const fn are_recorded(&self) -> bool {
        self.record.is_some()
    }

    pub fn options(&self) -> RemoteOptions {
        let mut options = self.server.options();
        options.cache_dir = self.cache.cache_dir.as_deref().map(absolute);
        options.cache_limit = self.cache.cache_limit;
        options.offline = self.offline;
        options.require_verified = self.require_verified;
        options.trust_cache = self.trust_cache;
        options.registry.platform.clone_from(&self.platform);
        options.readahead = match self.fetch_ahead {
            None | Some(FetchAhead::Async) => Readahead::Async,
            Some(FetchAhead::Off) => Readahead::Off,
        };
        options.prefetch = match self.prefetch.as_deref() {
            None => Prefetch::None,
            Some(word) if word == Path::new("none") => Prefetch::None,
            Some(word) if word == Path::new("all") => Prefetch::All,
            Some(file) => Prefetch::List(absolute(file)),
        };
        options.layer_index = self.layer_index.as_deref().map(absolute);
        options.referrers = self.referrers;
        options.record = self.record.as_deref().map(absolute);
        options
    }
}

impl CacheArgs {
    #[cfg(feature = "snapshotter")]
    pub fn words(&self) -> Vec<OsString> {
        let mut words = PassedWords::default();
        words.put("--cache-dir", self.cache_dir.as_deref().map(absolute));
        words.put("--cache-limit", self.cache_limit.map(limit_word));
        words.0
    }
}

impl ServerArgs {
    #[cfg(feature = "snapshotter")]
    pub fn words(&self) -> Vec<OsString> {
        let mut words = PassedWords::default();
        words.put("--mirror", self.mirrors.iter().map(|mirrors| &mirrors.word));
        words.put("--timeout", self.timeout.map(|it| it.to_string()));
        words.put("--retries", self.retries.map(|it| it.to_string()));
        words.put("--credentials-file", &self.credentials_file);
        words.put("--netrc-file", &self.netrc_file);
        words.put("--ca-file", &self.ca_file);
        words.put("--plain-http", &self.plain_http);
        words.0
    }

    /// Reads the files of mirrors again. After an error, which names the file, the old mirrors
    /// stay.
    pub fn reread(&mut self) -> Result<(), String> {
        let mut mirrors = self.mirrors.clone();
        for named in &mut mirrors {
            let Some(file) = named.file() else { continue };
            let addresses = addresses_in(file);
            named.addresses = addresses.map_err(|error| format!("{file}: {}", reason(&error)))?;
        }
        self.mirrors = mirrors;
        Ok(())
    }

    pub fn options(&self) -> RemoteOptions {
        let addresses = self
            .mirrors
            .iter()
            .flat_map(|named| named.addresses.clone());
        let mut options = RemoteOptions {
            mirrors: addresses.collect(),
            ..RemoteOptions::default()
        };
        if let Some(seconds) = self.timeout {
            options.timeout = Duration::from_secs(seconds);
            options.stall = options.stall.min(options.timeout);
            options.connect_timeout = options.connect_timeout.min(options.timeout);
        }
        if let Some(retries) = self.retries {
            options.retries = retries;
        }
        options.ca_file.clone_from(&self.ca_file);
        options.credentials.store.clone_from(&self.credentials_file);
        options.credentials.netrc.clone_from(&self.netrc_file);
        options.registry.insecure.clone_from(&self.plain_http);
        options
    }
}

/// The mirrors that one `--mirror` names.
#[derive(Clone, Debug)]
pub struct Mirrors {
    /// An address, or `@` and the absolute path of a file with addresses.
    word: String,
    addresses: Vec<String>,
}

impl Mirrors {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(file) = text.strip_prefix('@') else {
            return Ok(Self {
                word: text.to_string(),
                addresses: vec![text.to_string()],
            });
        };
        let path = absolute(Path::new(file)).into_os_string();
        let path = path.into_string().map_err(|_| "not UTF-8".to_string())?;
        let addresses = addresses_in(&path).map_err(|error| reason(&error))?;
        Ok(Self {
            word: format!("@{path}"),
            addresses,
        })
    }

    /// Returns the file with the addresses, if they are in a file.
    pub fn file(&self) -> Option<&str> {
        self.word.strip_prefix('@')
    }
}

/// Reads a file of mirrors, with an address on each line. Skips empty lines and comments.
fn addresses_in(file: &str) -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().map(str::trim);
    let addresses = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(addresses.map(String::from).collect())
}

#[cfg(feature = "snapshotter")]
#[derive(Default)]
struct PassedWords(Vec<OsString>);

#[cfg(feature = "snapshotter")]
impl PassedWords {
    fn put(&mut self, option: &str, values: impl IntoIterator<Item = impl Into<OsString>>) {
        for value in values {
            self.0.extend([option.into(), value.into()]);
        }
    }
}

/// Formats a limit in the form that [`limit`] parses.
#[cfg(feature = "snapshotter")]
fn limit_word(limit: u64) -> String {
    match limit {
        u64::MAX => "none".to_string(),
        bytes => bytes.to_string(),
    }
}

/// Parses a number of bytes, or `none`.
fn limit(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(u64::MAX),
        number => size::parse(number),
    }
}

/// Makes the path of a file absolute, because the file is read again on SIGHUP.
fn file(text: &str) -> Result<PathBuf, String> {
    Ok(absolute(Path::new(text)))
}

/// Makes a path absolute, because the process that serves a mount changes its directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}
