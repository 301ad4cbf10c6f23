//! The targets, one file for each area.

mod composefs;
mod erofs;
mod exfat;
mod remote;
mod romfs;
mod squashfs;
mod tar_tree;

use std::error::Error;

use crate::{Seeds, Target};

/// What makes seeds returns.
type Made = Result<Seeds, Box<dyn Error>>;

/// All targets.
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
    Target::new("tar_tree", tar_tree::run, tar_tree::seeds),
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
];

/// One seed.
fn one(bytes: impl Into<Vec<u8>>) -> Made {
    Ok(vec![("everything".to_string(), bytes.into())])
}

/// Seeds with names of their own.
fn named<N: Into<String>>(seeds: impl IntoIterator<Item = (N, Vec<u8>)>) -> Seeds {
    let own = seeds.into_iter().map(|(name, bytes)| (name.into(), bytes));
    own.collect()
}
