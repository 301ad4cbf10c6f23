//! Parses and validates the superblock.

mod legacy;

use forerun_codec::Codec;
use forerun_io::ReadAt;
use forerun_vfs::{ByteOrder, Error, Measured, Result, read_head};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{self, METADATA_BLOCK, NONE_64, Numbers, VERSION, compression};
use crate::reference::Reference;
use crate::variant;

pub use legacy::{Legacy, Version};

/// Length of the longest superblock, which 3.x has.
pub const LONGEST: usize = 119;
pub const LEN: usize = size_of::<ondisk::Superblock>();
/// [`LEN`] as an offset: the first one after the superblock.
pub const HEAD: u64 = 96;
const _: () = assert!(LEN == 96);

/// The superblock, validated on its own and against the length of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub inodes: u32,
    pub mkfs_time: u32,
    pub block_size: u32,
    pub fragments: u32,
    pub codec: Codec,
    pub flags: u16,
    pub ids: u16,
    pub root: Reference,
    pub bytes_used: u64,
    /// `bytes_used` as stored. A salvage limits `bytes_used` to the source.
    pub declared_len: u64,
    pub order: ByteOrder,
    /// The byte order of metadata block headers. Parsing sets it to `order`; opening may correct
    /// it.
    pub headers: ByteOrder,
    pub id_table: u64,
    pub xattr_table: Option<u64>,
    pub inode_table: u64,
    pub directory_table: u64,
    pub fragment_table: Option<u64>,
    pub export_table: Option<u64>,
    /// Fields of 1.x to 3.x; `None` for 4.0.
    pub legacy: Option<Legacy>,
}

/// Reads the head of an image. A streamed image, made by `mksquashfs -stream`, has its superblock
/// at its end.
///
/// # Errors
/// `Io`, `Corrupt` if a streamed image does not end with a superblock.
pub fn read(source: &dyn ReadAt) -> Result<Vec<u8>> {
    let head = read_head(source, LONGEST)?;
    if !head.starts_with(&variant::STREAMED) {
        return Ok(head);
    }
    let at = source.len().saturating_sub(HEAD);
    let mut tail = [0; LEN];
    let read = source.read_exact_at(at, &mut tail);
    read.map_err(|error| Error::io(at, LEN, error))?;
    match tail {
        [b'h', b's', b'q', b's', ..] => Ok(tail.to_vec()),
        [a, b, c, d, ..] => Err(Check::Streamed {
            found: [a, b, c, d],
        }
        .at(None, at)),
    }
}

impl Superblock {
    /// Parses the head of an image in a source of `source_len` bytes.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported` for other versions and variants, `Corrupt`.
    pub fn parse(head: &[u8], source_len: u64) -> Result<Self> {
        let superblock = Self::fields(head, source_len)?;
        let bytes_used = superblock.bytes_used;
        if bytes_used > source_len {
            let check = Check::SourceTooShort {
                bytes_used,
                source_len,
            };
            return Err(check.at(None, 0));
        }
        superblock.check_tables()?;
        Ok(superblock)
    }

    /// Parses the head of an image that may be truncated or have wrong table offsets. Optional
    /// tables outside of the image are ignored; the inode and directory tables become empty tables
    /// at the end of the image.
    ///
    /// # Errors
    /// The errors of [`Self::parse`], except for the length and the tables.
    pub fn parse_damaged(head: &[u8], source_len: u64) -> Result<Self> {
        let mut found = Self::fields(head, source_len)?;
        let end = found.bytes_used.min(source_len);
        // A length shorter than the superblock is wrong: use the source's length.
        found.bytes_used = if end < HEAD { source_len } else { end };
        let end = found.bytes_used;
        let inside = |start: &u64| (HEAD..end).contains(start);
        found.xattr_table = found.xattr_table.filter(inside);
        found.fragment_table = found.fragment_table.filter(inside);
        found.export_table = found.export_table.filter(inside);
        if !inside(&found.inode_table) {
            found.inode_table = end;
        }
        if !inside(&found.directory_table) || found.directory_table < found.inode_table {
            found.directory_table = end;
        }
        Ok(found)
    }

    fn fields(head: &[u8], source_len: u64) -> Result<Self> {
        if let Some(found) = Legacy::recognise(head) {
            return Legacy::parse(head, source_len, found);
        }
        let Ok((mut raw, _)) = ondisk::Superblock::read_from_prefix(head) else {
            return Err(Check::ShortSuperblock { len: source_len }.at(None, 0));
        };
        let fail = |check: Check| Err(check.at(None, 0));
        if !variant::is_any(head) {
            return Err(Error::UnknownFormat {
                expected: Some("squashfs".into()),
                found: format!("magic {:#010x}", raw.s_magic.get()),
            });
        }
        let order = variant::order(head);
        if order == ByteOrder::Big {
            raw.turn_round();
        }
        let version = (raw.s_major.get(), raw.s_minor.get());
        if version != VERSION {
            let (major, minor) = version;
            return Err(Error::Unsupported(format!(
                "SquashFS version {major}.{minor}; version 4.0 is supported"
            )));
        }
        let codec = codec(raw.compression.get())?;
        let (block_size, log) = (raw.block_size.get(), raw.block_log.get());
        if !(12..=20).contains(&log) || block_size != 1 << log {
            return fail(Check::BlockSize { block_size, log });
        }
        let optional = |start: u64| (start != NONE_64).then_some(start);
        Ok(Self {
            inodes: raw.inodes.get(),
            mkfs_time: raw.mkfs_time.get(),
            block_size,
            fragments: raw.fragments.get(),
            codec,
            flags: raw.flags.get(),
            ids: raw.no_ids.get(),
            root: Reference::from_raw(raw.root_inode.get()),
            bytes_used: raw.bytes_used.get(),
            declared_len: raw.bytes_used.get(),
            order,
            headers: order,
            id_table: raw.id_table_start.get(),
            xattr_table: optional(raw.xattr_id_table_start.get()),
            inode_table: raw.inode_table_start.get(),
            directory_table: raw.directory_table_start.get(),
            fragment_table: optional(raw.fragment_table_start.get()),
            export_table: optional(raw.lookup_table_start.get()),
            legacy: None,
        })
    }

    /// Returns the end of a structure that starts at `from`: the start of the next table, or the
    /// end of the image.
    pub fn end_of(&self, from: u64) -> u64 {
        let starts = self.tables();
        let later = starts.filter_map(|(_, start)| start);
        let next = later.filter(|&start| start > from).min();
        next.unwrap_or(self.bytes_used).min(self.bytes_used)
    }

    /// Returns an upper bound on the end of the directory table. Between its end and this offset
    /// are the blocks of the next table, which come before that table's pointers.
    pub fn end_of_directories(&self) -> u64 {
        self.end_of(self.directory_table)
    }

    /// Returns the creation time of the image in seconds since 1970. `None` if that field holds the
    /// image length, as in the images of the big-endian vendor.
    pub fn created(&self) -> Option<u32> {
        let is_length =
            self.order == ByteOrder::Big && u64::from(self.mkfs_time) == self.bytes_used;
        (self.legacy.is_some() || !is_length).then_some(self.mkfs_time)
    }

    /// Returns the offset of the end of the superblock.
    pub fn head(&self) -> u64 {
        self.legacy.as_ref().map_or(HEAD, |legacy| legacy.head)
    }

    fn tables(&self) -> impl Iterator<Item = (&'static str, Option<u64>)> {
        [
            ("inode table", Some(self.inode_table)),
            ("directory table", Some(self.directory_table)),
            ("fragment table", self.fragment_table),
            ("export table", self.export_table),
            ("id table", Some(self.id_table)),
            ("xattr table", self.xattr_table),
        ]
        .into_iter()
    }

    fn check_tables(&self) -> Result<()> {
        for (table, start) in self.tables() {
            let Some(start) = start else { continue };
            let head = self.head();
            if start < head || start >= self.bytes_used {
                let end = self.bytes_used;
                return Err(Check::TableOutside { table, start, end }.at(None, 0));
            }
        }
        if self.directory_table <= self.inode_table {
            return Err(Check::TableOrder {
                inodes: self.inode_table,
                directories: self.directory_table,
            }
            .at(None, 0));
        }
        if self.ids == 0 {
            return Err(Check::NoIds.at(None, 0));
        }
        if self.fragments > 0 && self.fragment_table.is_none() {
            let fragments = self.fragments;
            return Err(Check::NoFragmentTable { fragments }.at(None, 0));
        }
        let inodes = self.directory_table - self.inode_table;
        if self.root.block() >= inodes || self.root.offset() >= METADATA_BLOCK {
            let root = self.root;
            return Err(Check::Reference {
                reference: root,
                table: "inode table",
                len: inodes,
            }
            .at(None, 0));
        }
        Ok(())
    }
}

/// Validates a superblock that a search has found. It has no checksum, but version, compressor,
/// block size and table order rule out random data.
///
/// # Errors
/// The errors of [`Superblock::parse`], `Io`.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let head = read(source)?;
    // An image that is cut has its tables outside of the source.
    let superblock = Superblock::parse(&head, u64::MAX)?;
    let is_streamed = read_head(source, 4)? == variant::STREAMED;
    let len = if is_streamed {
        source.len()
    } else {
        superblock.bytes_used
    };
    let version = superblock.legacy.as_ref();
    let version = version.map_or_else(|| "4.0".into(), Legacy::version_text);
    Ok(Measured {
        len: Some(len),
        label: Vec::new(),
        created: superblock.created().map(i64::from),
        details: format!("{}, version {}", compressor(superblock.codec), version),
    })
}

fn codec(id: u16) -> Result<Codec> {
    match id {
        compression::GZIP => Ok(Codec::Zlib),
        compression::LZMA => Ok(Codec::Lzma),
        compression::LZO => Ok(Codec::Lzo),
        compression::XZ => Ok(Codec::Xz),
        compression::LZ4 => Ok(Codec::Lz4),
        compression::ZSTD => Ok(Codec::Zstd),
        other => Err(Error::Unsupported(format!(
            "SquashFS compressor number {other}"
        ))),
    }
}

/// Returns the codec's name for `mksquashfs -comp`.
pub const fn compressor(codec: Codec) -> &'static str {
    match codec {
        Codec::Zlib => "gzip",
        other => other.name(),
    }
}
