//! The usage of `mksquashfs` and `sqfstar`, in forerun's own words.

use super::compressor::COMPRESSORS;
use super::options::Tool;

const OPTIONS: &str = "\
Contents
    -comp NAME              compressor [gzip]; its options are below
    -b BYTES                block size, 4096 to 1M [128K]
    -no-exports, -exports   without or with the table that NFS servers need
    -no-sparse              store blocks of zeros
    -no-xattrs, -xattrs     without or with extended attributes
    -noI, -noId, -noD, -noF, -noX
                            do not compress inodes, owners, data, fragments,
                            attributes; also -noInodeCompression,
                            -noIdTableCompression, -noDataCompression,
                            -noFragmentCompression, -noXattrCompression
    -no-compression         compress nothing
    -xattrs-include, -xattrs-exclude REGEX   by name
    -xattrs-add NAME=VALUE  give this attribute to everything
    -no-fragments           store every file in blocks of its own
    -no-tailends            store only large files in blocks of their own
    -no-duplicates          store equal files more than once
    -no-hardlinks           store hard links as files
    -nopad                  do not pad the image to 4 KiB
    -o, -offset BYTES       offset of the image in the file; takes K, M, G

Owners and times
    -all-root, -root-owned  give everything to root
    -force-uid USER, -force-gid GROUP   give everything to this user or group
    -uid-gid-offset N       add N to all users and groups
    -root-mode MODE, -root-uid USER, -root-gid GROUP, -root-time TIME
                            mode, owner, group, time of the root directory
    -force-file-mode, -force-dir-mode MODE   modes of files, of directories
    -mkfs-time, -fstime TIME        time of the image [now]
    -all-time, -inode-time TIME     time of everything
    -repro                  -mkfs-time inode
    -repro-time TIME        -mkfs-time TIME and -all-time TIME
    TIME is seconds since 1970, a date, now, or inode: the latest of the files
    -p LINE, -pf FILE       add or change entries; no commands are run
    -pd, -pseudo-dir LINE   mode and owner of directories that no line lists
    -pseudo-override        lines win over options for owners and modes

Selection
    -ef FILE                leave out the paths in FILE, one on each line
    -regex                  treat paths to leave out as regular expressions

Work
    -processors N           use N threads
    -mem BYTES              use at most a quarter of this for data in memory
    -exit-on-error          stop if a file cannot be read
    -quiet, -info, -no-progress, -progress, -percentage
                            print less or more
    -info-file FILE         list what is packed in FILE
    -version, -help, -help-all, -h, -ha, -Xhelp
    -reproducible, -not-reproducible, -throttle N, -limit N, -mem-percent N,
    -overcommit N, -single-reader, -small-readers N, -block-readers N,
    -numeric-owner          accepted without effect
";

const MKSQUASHFS: &str = "\
Of mksquashfs
    -noappend               replace FILESYSTEM; an existing one is refused
                            without this option
    -tar                    read a tar archive from standard input; the source is -
    -e PATH...              leave out these paths; must be the last option
    -wildcards              treat paths to leave out as shell patterns
    -keep-as-directory      keep the name of a single source directory
    -one-file-system        keep mount points as empty directories
    -one-file-system-x      leave out mount points
    -max-depth N            leave out what is more than N directories deep
    -always-use-fragments, -tailends   also pack the tails of large files together
    -action ACTION@TESTS    accepted without effect for actions about the layout
    -sort FILE              order files by their priorities in FILE
    -no-recovery, -recovery-path DIR   accepted without effect
";

const SQFSTAR: &str = "\
Of sqfstar
    -force                  replace FILESYSTEM
";

pub fn text(tool: Tool, name: &str) -> String {
    let (synopsis, own) = match tool {
        Tool::Mksquashfs => ("SOURCE... FILESYSTEM [OPTIONS] [-e PATH...]", MKSQUASHFS),
        Tool::Sqfstar => ("[OPTIONS] FILESYSTEM [PATH TO LEAVE OUT...]", SQFSTAR),
    };
    let compressors = COMPRESSORS.iter();
    let compressors: String = compressors
        .map(|(name, options)| format!("    {name}\n{options}"))
        .collect();
    format!(
        "SYNTAX:{name} {synopsis}\n\n{OPTIONS}\n{own}\nCompressors and their options\n{compressors}"
    )
}
