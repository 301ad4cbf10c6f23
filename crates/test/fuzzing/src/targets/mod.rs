//! The targets, one file for each area.

mod cache;
mod codec;
mod composefs;
mod cramfs;
mod disk;
mod erofs;
mod exfat;
mod exfat_model;
mod fuse;
mod layers;
mod remote;
mod romfs;
mod scan;
mod spans;
mod squashfs;
mod status;
mod tables;
mod tar_tree;
mod tar_walk;
mod undo;
mod unsquashfs;
mod written;
mod zip;

use std::error::Error;

use forerun_testkit::mutate::is_located;

use crate::{Seeds, Target};

/// The result of a function that makes seeds.
type Made = Result<Seeds, Box<dyn Error>>;

pub const TARGETS: &[Target] = &[
    Target::new("romfs_superblock", romfs::superblock, romfs::superblocks),
    Target::new("romfs_header", romfs::header, romfs::headers),
    Target::new("romfs_walk", romfs::walk, romfs::images),
    Target::new(
        "squashfs_superblock",
        squashfs::superblock,
        squashfs::superblocks,
    ),
    Target::new("squashfs_inodes", squashfs::inodes, squashfs::inode_seeds),
    Target::new(
        "squashfs_directories",
        squashfs::directories,
        squashfs::directory_seeds,
    ),
    Target::new("squashfs_xattrs", squashfs::xattrs, squashfs::xattr_seeds),
    Target::new("squashfs_walk", squashfs::walk, squashfs::images),
    Target::new("squashfs_salvage", squashfs::salvage, squashfs::cut_images),
    Target::new("erofs_superblock", erofs::superblock, erofs::superblocks),
    Target::new("erofs_inodes", erofs::inodes, erofs::inode_seeds),
    Target::new(
        "erofs_directories",
        erofs::directories,
        erofs::directory_seeds,
    ),
    Target::new("erofs_xattrs", erofs::xattrs, erofs::xattr_seeds),
    Target::new("erofs_walk", erofs::walk, erofs::images),
    Target::new(
        "composefs_attributes",
        composefs::attributes,
        composefs::attribute_seeds,
    ),
    Target::new("composefs_walk", composefs::walk, composefs::images),
    Target::new("cramfs_superblock", cramfs::superblock, cramfs::superblocks),
    Target::new(
        "cramfs_directory",
        cramfs::directory,
        cramfs::directory_seeds,
    ),
    Target::new("cramfs_blocks", cramfs::blocks, cramfs::block_seeds),
    Target::new("cramfs_walk", cramfs::walk, cramfs::images),
    Target::new("tar_tree", tar_tree::run, tar_tree::seeds),
    Target::new("spans_index", spans::index, spans::streams),
    Target::new("tar_kept", spans::kept, spans::kept_indexes),
    Target::new("tar_table", tables::table, tables::seeds),
    Target::new("tar_ztoc", tables::ztoc, tables::ztoc_seeds),
    Target::new("tar_walk", tar_walk::run, tar_walk::seeds),
    Target::new("zip_walk", zip::walk, zip::archives),
    Target::new("layers_merge", layers::merge, layers::seeds),
    Target::new("exfat_walk", exfat::walk, exfat::images),
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
    Target::new("squashfs_reference", unsquashfs::compare, squashfs::images),
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

/// Asserts that each error of a hostile image names its place, a node or a limit.
fn assert_located(errors: &[forerun::vfs::Error]) {
    for error in errors {
        assert!(is_located(error), "{error}");
    }
}

fn one(bytes: impl Into<Vec<u8>>) -> Made {
    Ok(vec![("everything".to_string(), bytes.into())])
}

/// Gives seeds the names that come with them.
fn named<N: Into<String>>(seeds: impl IntoIterator<Item = (N, Vec<u8>)>) -> Seeds {
    let own = seeds.into_iter().map(|(name, bytes)| (name.into(), bytes));
    own.collect()
}
