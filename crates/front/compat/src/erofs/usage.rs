//! The usage of the programs, in forerun's own words.

pub const MKFS: &str = "\
usage: [options] FILE DIRECTORY
       [options] --tar=f FILE [ARCHIVE]

Makes the EROFS image FILE of DIRECTORY, or of a tar archive, by default that on standard input.
 -zX[,LEVEL]           compress: lz4, lz4hc (1 to 12), lzma (0 to 9), deflate (1 to 12), zstd (1 to 22)
 -C#                   bytes of a physical cluster
 -b#                   bytes of a block
 -EX[,...]             noinline_data, legacy-compress, ztailpacking, dedupe, fragments, all-fragments,
                       force-inode-compact; without effect: force-inode-extended, force-inode-blockmap,
                       force-chunk-indexes, nosbcrc
 -T#                   the time of the image and of all files, in seconds since 1970
 -UX                   the UUID of the image
 -LX                   the label of the image
 -x#                   store attributes of more than # inodes once; below 0: no attributes
 --all-root            everything belongs to root; --force-uid=#, --force-gid=#: to them
 --blobdev=X           put chunks into this file
 --chunksize=#         store files in chunks of # bytes
 --exclude-path=X      leave out the path X; --exclude-regex=X: paths that match X
 --ignore-mtime        files have the time at which the image is made; --preserve-mtime: their own
 --tar=f               read a tar archive
 --aufs                turn whiteouts of AUFS and OCI layers into those of overlayfs
 --xattr-prefix=X      store this prefix of attributes' names once
 --quiet               print nothing
 --max-extent-bytes=#, --workers=#, -d#   accepted without effect
 --help, -V, --version
";

pub const FSCK: &str = "\
usage: [options] IMAGE

Checks the EROFS image IMAGE, or extracts it.
 --extract[=X]          read all contents, too; extract to the directory X
 --device=X             a further device of the image
 --offset=#             the image begins # bytes into the file
 -p                     print the ratio of compression
 --overwrite            replace files that are there
 --force                allow to extract to /
 --preserve, --preserve-owner, --preserve-perms            keep owners and permissions [as root]
 --no-preserve, --no-preserve-owner, --no-preserve-perms   take those of new files
 --xattrs, --no-xattrs  with or without extended attributes
 -d#, --no-sbcrc        accepted without effect
 --help, -V, --version
";

pub const DUMP: &str = "\
usage: [options] IMAGE

Describes the EROFS image IMAGE.
 -s                     the superblock; done where nothing else is asked for
 -S                     statistics of files
 --path=X, --nid=#      a file by its path or number
 -e                     list its extents
 --ls                   list the directory
 --device=X             a further device of the image
 --offset=#             the image begins # bytes into the file
 -d#                    accepted without effect
 --help, -V, --version
";

pub const FUSE: &str = "\
usage: [options] IMAGE MOUNTPOINT

Mounts the EROFS image IMAGE.
 --offset=#             the image begins # bytes into the file
 --device=X             a further device of the image
 --dbglevel=#           accepted without effect
 -f                     stay in the foreground; -d: and log
 -s                     accepted without effect
 -o opt,...             mount options, as ro, allow_other or nosuid
 -h, --help, -V, --version
";
