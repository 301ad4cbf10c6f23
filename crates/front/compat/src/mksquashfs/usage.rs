//! The usage of `mksquashfs` and `sqfstar`, in forerun's own words.

use super::compressor::COMPRESSORS;
use super::options::Tool;

const OPTIONS: &str = "\
Contents
    -comp NAME              the compressor [gzip]; its options are below
    -b BYTES                bytes of a block, 4096 to 1M [128K]
    -no-exports, -exports   without or with the table that NFS servers need
    -no-sparse              store blocks of zeros
    -no-xattrs, -xattrs     without or with extended attributes
    -noI, -noId, -noD, -noF, -noX   do not compress inodes, owners, data, fragments, attributes;
                            also -noInodeCompression, -noIdTableCompression, -noDataCompression,
                            -noFragmentCompression, -noXattrCompression
    -no-fragments           give every file blocks of its own; -no-tailends: only large files
    -no-duplicates          store equal files more than once
    -no-hardlinks           store hard links as files
    -nopad                  do not pad the image to 4 KiB
    -o, -offset BYTES       begin there in the file; K, M and G may follow

Owners and times
    -all-root, -root-owned  give everything to root
    -force-uid USER, -force-gid GROUP   give everything to them
    -root-mode MODE, -root-uid N, -root-gid N, -root-time SECONDS   of the root directory
    -mkfs-time, -fstime SECONDS     the time of the image [now]
    -all-time SECONDS       the time of everything

Selection
    -ef FILE                leave out the paths in FILE, one on a line
    -regex                  paths to leave out are regular expressions

Work
    -processors N           use N threads
    -mem BYTES              keep at most a quarter of this in memory of what is read
    -exit-on-error          end where a file cannot be read
    -quiet, -info, -no-progress, -progress   what is told
    -version, -help, -h, -Xhelp
    -reproducible, -not-reproducible, -throttle N, -limit N   accepted without effect
";

const MKSQUASHFS: &str = "\
Of mksquashfs
    -noappend               replace FILESYSTEM; without it, one that is there is refused
    -tar                    read a tar archive from standard input; the source is -
    -e PATH...              leave these out; the last option
    -wildcards              paths to leave out are patterns of a shell
    -keep-as-directory      take a single directory with its name
    -one-file-system        take directories on which others are mounted without what is in them
    -always-use-fragments, -tailends   pack the ends of large files together, too
    -p LINE, -pf FILE       make or change entries; no commands are run
    -sort FILE              put files together by their priorities
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
