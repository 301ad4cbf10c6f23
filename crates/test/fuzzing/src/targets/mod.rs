//! The targets, one file per area.

mod cache;
mod codec;
mod disk;
mod drivers;
mod exfat;
mod exfat_model;
mod fuse;
mod layers;
mod remote;
mod scan;
mod spans;
mod status;
mod tables;
mod tar_tree;
mod tar_walk;
mod undo;
mod unsquashfs;
mod written;

use std::error::Error;

use drivers::{heads, located, squashfs_images, walk};
use forerun_composefs::fuzzing as composefs;
use forerun_cramfs::fuzzing as cramfs;
use forerun_erofs::fuzzing as erofs;
use forerun_romfs::fuzzing as romfs;
use forerun_squashfs::fuzzing as squashfs;
use forerun_zip::fuzzing as zip;

use crate::{Seeds, Target};

type Made = Result<Seeds, Box<dyn Error>>;

pub const TARGETS: &[Target] = &[
    Target::new("romfs_superblock", romfs::superblock, || {
        heads(Ok(named(romfs::seeds()?)), 512)
    }),
    Target::new("romfs_header", romfs::header, drivers::romfs_headers),
    Target::new("romfs_walk", drivers::romfs_walk, || {
        Ok(named(romfs::seeds()?))
    }),
    // The superblock of 3.x is the longest.
    Target::new("squashfs_superblock", squashfs::superblock, || {
        heads(squashfs_images(), 119)
    }),
    Target::new("squashfs_inodes", squashfs::inodes, || {
        one(squashfs::Parts::everything().inodes)
    }),
    Target::new("squashfs_directories", squashfs::directories, || {
        one(squashfs::Parts::everything().listings)
    }),
    Target::new(
        "squashfs_xattrs",
        squashfs::xattrs,
        drivers::squashfs_xattrs,
    ),
    Target::new(
        "squashfs_walk",
        |bytes| walk("squashfs", squashfs::walk, bytes),
        squashfs_images,
    ),
    Target::new(
        "squashfs_salvage",
        squashfs::salvage,
        drivers::cut_squashfs_images,
    ),
    Target::new(
        "erofs_superblock",
        erofs::superblock,
        drivers::erofs_superblocks,
    ),
    Target::new("erofs_inodes", erofs::inodes, || {
        one(&erofs::image()[erofs::PIECES.0])
    }),
    Target::new("erofs_directories", erofs::directories, || {
        one(&erofs::image()[erofs::PIECES.1])
    }),
    Target::new("erofs_xattrs", erofs::xattrs, || {
        one(&erofs::image()[erofs::PIECES.2])
    }),
    Target::new(
        "erofs_walk",
        |bytes| walk("erofs", erofs::walk, bytes),
        drivers::erofs_images,
    ),
    Target::new("composefs_attributes", composefs::attributes, || {
        Ok(named(composefs::attribute_seeds()))
    }),
    Target::new("composefs_dump", composefs::dump, || {
        Ok(named(composefs::dump_seeds()?))
    }),
    Target::new(
        "composefs_walk",
        |bytes| walk("composefs", composefs::walk, bytes),
        || Ok(named(composefs::seeds()?)),
    ),
    Target::new("cramfs_superblock", cramfs::superblock, || {
        heads(Ok(named(cramfs::seeds())), 588)
    }),
    Target::new(
        "cramfs_directory",
        |bytes| located(cramfs::directory, bytes),
        || one(cramfs::entries()),
    ),
    Target::new(
        "cramfs_blocks",
        |bytes| located(cramfs::blocks, bytes),
        || one(cramfs::pointers()),
    ),
    Target::new(
        "cramfs_walk",
        |bytes| walk("cramfs", cramfs::walk, bytes),
        || Ok(named(cramfs::seeds())),
    ),
    Target::new("tar_tree", tar_tree::run, tar_tree::seeds),
    Target::new("spans_index", spans::index, spans::streams),
    Target::new("tar_kept", spans::kept, spans::kept_indexes),
    Target::new("tar_table", tables::table, tables::seeds),
    Target::new("tar_ztoc", tables::ztoc, tables::ztoc_seeds),
    Target::new(
        "tar_walk",
        |bytes| walk("tar", forerun_tar::fuzzing::walk, bytes),
        tar_walk::seeds,
    ),
    Target::new(
        "zip_walk",
        |bytes| walk("zip", zip::walk, bytes),
        || Ok(named(zip::seeds())),
    ),
    Target::new("layers_merge", layers::merge, layers::seeds),
    Target::new(
        "exfat_walk",
        |bytes| walk("exfat", forerun_exfat::fuzzing::walk, bytes),
        exfat::images,
    ),
    Target::new("exfat_repair", exfat::repair, exfat::repair_seeds),
    Target::new("exfat_parts", exfat::parts, exfat::part_seeds),
    Target::new(
        "exfat_operations",
        exfat::operations,
        exfat::operation_seeds,
    ),
    Target::new(
        "remote_documents",
        remote::documents,
        remote::document_seeds,
    ),
    Target::new("remote_texts", remote::texts, remote::text_seeds),
    Target::new("romfs_written", written::romfs, written::seeds),
    Target::new("squashfs_written", written::squashfs, written::seeds),
    Target::new("erofs_written", written::erofs, written::seeds),
    Target::new("composefs_written", written::composefs, written::seeds),
    Target::new("exfat_written", written::exfat, written::seeds),
    Target::new(
        "exfat_model",
        exfat_model::run_operations,
        exfat_model::seeds,
    ),
    Target::new("codec_decode", codec::decode, codec::decode_seeds),
    Target::new("codec_encode", codec::encode, codec::encode_seeds),
    Target::new("squashfs_reference", unsquashfs::compare, squashfs_images),
    Target::new("cache_texts", cache::texts, cache::text_seeds),
    Target::new("cache_directory", cache::directory, cache::directory_seeds),
    Target::new("undo_file", undo::file, undo::file_seeds),
    Target::new("undo_changes", undo::changes, undo::change_seeds),
    Target::new("disk_map", disk::run, disk::seeds),
    Target::new("scan", scan::run, scan::seeds),
    Target::new("fuse_image", fuse::image, fuse::request_seeds),
    Target::new("fuse_volume", fuse::volume, fuse::request_seeds),
    Target::new("fuse_messages", fuse::messages, fuse::message_seeds),
    Target::new("fuse_state", fuse::state, fuse::state_seeds),
    Target::new("status_question", status::question, status::question_seeds),
    Target::new("status_answers", status::answers, status::answer_seeds),
];

fn one(bytes: impl Into<Vec<u8>>) -> Made {
    Ok(vec![("everything".to_string(), bytes.into())])
}

fn named<N: Into<String>>(seeds: impl IntoIterator<Item = (N, Vec<u8>)>) -> Seeds {
    let own = seeds.into_iter().map(|(name, bytes)| (name.into(), bytes));
    own.collect()
}
