//! The usage texts of the programs, in forerun's own words.

pub const MKFS: &str = "\
usage: [options] FILE DIRECTORY
       [options] --tar=f|i FILE [ARCHIVE]
       [options] --ovlfs-strip=1 FILE LAYER...

Makes the EROFS image FILE from DIRECTORY, from a tar archive [standard input],
or from the metadata of EROFS images, the lowest first.
 -zX[,LEVEL][,dictsize=#]   compressor: lz4, lz4hc (1 to 12),
                       lzma (0 to 9), deflate (1 to 12), zstd (1 to 22)
 -C#                   size of a physical cluster, in bytes
 -b#                   block size, in bytes
 -EX[,...]             noinline_data, legacy-compress, ztailpacking, dedupe,
                       fragments, all-fragments, force-inode-compact;
                       accepted without effect: force-inode-extended,
                       force-inode-blockmap, force-chunk-indexes, nosbcrc,
                       fragdedupe=X, 48bit
 -T#                   time of the image and of all files, in seconds since 1970
 -UX                   UUID of the image
 -LX                   label of the image
 -x#                   store attributes of more than # inodes once;
                       below 0: no attributes
 --all-root            give everything to root
 --force-uid=#, --force-gid=#   give everything to this user or group
 --uid-offset=#, --gid-offset=#     add # to users and groups
 --hard-dereference    store hard links as files
 --offset=#            offset of the image in FILE, in bytes
 --mkfs-time, --all-time   -T sets the time of the image alone, or of all
 --ovlfs-strip=[01]    leave out whiteouts of overlayfs
 --blobdev=X           write chunks to the file X
 --chunksize=#         store files in chunks of # bytes
 --exclude-path=X      leave out the path X
 --exclude-regex=X     leave out paths that match X
 --ignore-mtime        set the times of files to the present time
 --preserve-mtime      keep the times of files
 --tar=f, --tar=i      read a tar archive; i: refer to its data, do not copy it
 --aufs                convert whiteouts of AUFS and OCI layers to overlayfs
 --xattr-prefix=X      shorten names of attributes that start with X
 --quiet               print nothing
 --max-extent-bytes=#, --workers=#, --ungzip, --unxz, --sort=none|path,
 --mount-point=X, -d#  accepted without effect
 --help, -V, --version
";

pub const FSCK: &str = "\
usage: [options] IMAGE

Checks the EROFS image IMAGE, or extracts it.
 --extract[=X]          also read all contents; extract to the directory X
 --device=X             another device of the image
 --offset=#             offset of the image in the file, in bytes
 -p                     print the compression ratio
 --overwrite            replace existing files
 --force                allow extracting to /
 --preserve, --preserve-owner, --preserve-perms
                        keep owners and permissions [default as root]
 --no-preserve, --no-preserve-owner, --no-preserve-perms
                        use those of new files
 --xattrs, --no-xattrs  with or without extended attributes
 -d#, --no-sbcrc        accepted without effect
 --help, -V, --version
";

pub const DUMP: &str = "\
usage: [options] IMAGE

Describes the EROFS image IMAGE.
 -s                     show the superblock [default]
 -S                     show statistics of files
 --path=X, --nid=#      show the file with this path or number
 -e                     list the extents of the file
 --ls                   list the directory
 --device=X             another device of the image
 --offset=#             offset of the image in the file, in bytes
 -d#                    accepted without effect
 --help, -V, --version
";

pub const FUSE: &str = "\
usage: [options] IMAGE MOUNTPOINT

Mounts the EROFS image IMAGE.
 --offset=#             offset of the image in the file, in bytes
 --device=X             another device of the image
 --dbglevel=#           accepted without effect
 -f                     stay in the foreground
 -d                     stay in the foreground, and log
 -s                     accepted without effect
 -o opt,...             mount options, such as ro, allow_other or nosuid
 -h, --help, -V, --version
";
