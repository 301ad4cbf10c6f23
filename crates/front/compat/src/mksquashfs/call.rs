//! A command line of `mksquashfs` or `sqfstar` that can be followed.

use std::ffi::OsString;

use forerun::build::{Compress, Fragments};

/// A line of `-p`, or the file of `-pf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    Line(Vec<u8>),
    File(OsString),
}

/// An option of the compressor, with its value.
pub type CompressorWord = (String, Option<OsString>);

/// A command line that can be followed.
#[derive(Debug, PartialEq, Eq)]
pub struct MakeCall {
    pub sources: Vec<OsString>,
    pub output: OsString,
    pub tar: bool,
    pub compressor: Option<String>,
    pub compressor_words: Vec<CompressorWord>,
    pub block_size: u32,
    pub mkfs_time: Option<u32>,
    pub all_time: Option<u32>,
    pub root_time: Option<u32>,
    pub root_mode: Option<u16>,
    pub root_uid: Option<u32>,
    pub root_gid: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub exports: bool,
    pub sparse: bool,
    pub xattrs: bool,
    pub compress: Compress,
    pub fragments: Fragments,
    pub duplicates: bool,
    pub hard_links: bool,
    pub keep_directory: bool,
    pub definitions: Vec<Definition>,
    pub sort: Vec<OsString>,
    pub excludes: Vec<Vec<u8>>,
    pub exclude_files: Vec<OsString>,
    pub wildcards: bool,
    pub regex: bool,
    pub one_file_system: bool,
    pub replace: bool,
    pub exit_on_error: bool,
    pub quiet: bool,
    pub info: bool,
    pub progress: bool,
    pub processors: Option<u16>,
    pub memory: Option<u64>,
    pub pad: bool,
    pub offset: u64,
}

impl Default for MakeCall {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            output: OsString::new(),
            tar: false,
            compressor: None,
            compressor_words: Vec::new(),
            block_size: 128 << 10,
            mkfs_time: None,
            all_time: None,
            root_time: None,
            root_mode: None,
            root_uid: None,
            root_gid: None,
            uid: None,
            gid: None,
            exports: true,
            sparse: true,
            xattrs: true,
            compress: Compress::default(),
            fragments: Fragments::default(),
            duplicates: true,
            hard_links: true,
            keep_directory: false,
            definitions: Vec::new(),
            sort: Vec::new(),
            excludes: Vec::new(),
            exclude_files: Vec::new(),
            wildcards: false,
            regex: false,
            one_file_system: false,
            replace: false,
            exit_on_error: false,
            quiet: false,
            info: false,
            progress: true,
            processors: None,
            memory: None,
            pad: true,
            offset: 0,
        }
    }
}
