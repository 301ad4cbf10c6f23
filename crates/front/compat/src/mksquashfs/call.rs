//! A valid command line of `mksquashfs` or `sqfstar`.

use std::ffi::OsString;
use std::path::PathBuf;

use forerun::build::{Compress, Fragments, OtherFilesystems};

use super::mode::ModeChange;

/// A line of `-p` or `-pd`, or the file of `-pf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    Line(Vec<u8>),
    /// The attributes of directories that no line lists.
    MissingDirectories(Vec<u8>),
    File(OsString),
}

/// A time of the image, of its root or of all entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeTime {
    Seconds(u32),
    /// The latest time of the entries.
    Latest,
}

/// A compressor option with its value.
pub type CompressorWord = (String, Option<OsString>);

/// A valid command line.
#[derive(Debug, PartialEq, Eq)]
pub struct MakeCall {
    pub sources: Vec<OsString>,
    pub output: OsString,
    pub tar: bool,
    pub compressor: Option<String>,
    pub compressor_words: Vec<CompressorWord>,
    pub block_size: u32,
    pub mkfs_time: Option<MakeTime>,
    pub all_time: Option<MakeTime>,
    pub root_time: Option<MakeTime>,
    pub root_mode: Option<ModeChange>,
    pub file_mode: Option<ModeChange>,
    pub dir_mode: Option<ModeChange>,
    pub root_uid: Option<u32>,
    pub root_gid: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub owner_offset: u32,
    /// Definitions apply last, so that their owners and modes stay.
    pub definitions_last: bool,
    pub exports: bool,
    pub sparse: bool,
    pub xattrs: bool,
    pub xattrs_include: Option<String>,
    pub xattrs_exclude: Option<String>,
    /// Attributes for all entries, by name.
    pub xattrs_add: Vec<(Vec<u8>, Vec<u8>)>,
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
    pub max_depth: Option<usize>,
    pub other_filesystems: OtherFilesystems,
    pub replace: bool,
    pub exit_on_error: bool,
    pub quiet: bool,
    pub info: bool,
    pub info_file: Option<PathBuf>,
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
            file_mode: None,
            dir_mode: None,
            root_uid: None,
            root_gid: None,
            uid: None,
            gid: None,
            owner_offset: 0,
            definitions_last: false,
            exports: true,
            sparse: true,
            xattrs: true,
            xattrs_include: None,
            xattrs_exclude: None,
            xattrs_add: Vec::new(),
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
            max_depth: None,
            other_filesystems: OtherFilesystems::Taken,
            replace: false,
            exit_on_error: false,
            quiet: false,
            info: false,
            info_file: None,
            progress: true,
            processors: None,
            memory: None,
            pad: true,
            offset: 0,
        }
    }
}
