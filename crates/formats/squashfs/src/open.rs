//! Opens an image from its source: reads the superblock, finds what it does not declare, and opens
//! the tables and the root.

use std::collections::HashMap;
use std::sync::Mutex;

use forerun_vfs::{Error, NodeId, OpenWith, Result};

use crate::choose;
use crate::error::Check;
use crate::image::{Image, Substitutes};
use crate::inode::InodeBody;
use crate::superblock::{self, Superblock};

impl Image {
    /// Opens the image and reads its superblock, tables and root.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported`, `Corrupt` if superblock, tables or root fail a check, `Io`
    /// if they cannot be read.
    pub fn open(with: OpenWith) -> Result<Self> {
        let head = superblock::read(&*with.metadata)?;
        let mut superblock = Superblock::parse(&head, with.metadata.len())?;
        superblock.headers = choose::headers(&with, &superblock)?;
        superblock.codec = choose::codec(&with, &superblock, &head)?;
        let error = match Self::with_root(with.clone(), superblock.clone()) {
            Err(error @ Error::Corrupt(_)) => error,
            other => return other,
        };
        match choose::undeclared(&with, &superblock)? {
            Some(codec) => Self::with_root(
                with,
                Superblock {
                    codec,
                    ..superblock
                },
            ),
            None => Err(error),
        }
    }

    fn with_root(with: OpenWith, superblock: Superblock) -> Result<Self> {
        let image = Self::assemble(with, superblock, &mut Err)?;
        let root = NodeId(image.superblock.root.raw());
        match image.inode(root)?.body {
            InodeBody::Dir(_) => Ok(image),
            _ => Err(Check::RootKind.at(Some(root), image.superblock.inode_table)),
        }
    }

    /// Opens an image that may be damaged. Calls `pass_over` with the error of each table that it
    /// ignores.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported`, `Corrupt` if the superblock makes no sense, `Io` if it
    /// cannot be read.
    pub fn open_damaged(with: OpenWith, pass_over: &mut dyn FnMut(Error)) -> Result<Self> {
        let head = superblock::read(&*with.metadata)?;
        let mut superblock = Superblock::parse_damaged(&head, with.metadata.len())?;
        superblock.headers = choose::headers(&with, &superblock)?;
        superblock.codec = choose::codec(&with, &superblock, &head)?;
        let substitutes = Substitutes {
            uid: with.ownership.uid,
            gid: with.ownership.gid,
            fragments: HashMap::new(),
            holes: Mutex::default(),
        };
        let mut image = Self::assemble(with, superblock, &mut |error| {
            pass_over(error);
            Ok(())
        })?;
        image.salvage = Some(substitutes);
        Ok(image)
    }
}
