//! The usage of `unsquashfs`, in forerun's own words.

const OPTIONS: &str = "\
Action [default: extract]
    -l, -ls                 list paths
    -ll, -lls               list with attributes; -lln, -llnumeric: with numeric owners
    -lc, -llc               list only files and empty directories, without or with attributes
    -cat                    write files to standard output
    -s, -stat               describe the superblock
    -mkfs-time, -fstime     print when the image was made, in seconds since 1970
    -v, -version            print the version
    -h, -help               print this text

What to extract or list
    -o, -offset BYTES       offset of the image in the file; takes K, M, G
    -max, -max-depth N      descend at most N directories
    -e, -ef, -extract-file FILE      extract the paths in FILE, one on each line
    -exc, -excf, -exclude-file FILE  leave out the paths in FILE
    -ex, -exclude-list PATH... \\;    leave out these paths
    -excludes               leave out the paths after FILESYSTEM
    -no-wild, -no-wildcards treat paths as names, not as patterns
    -r, -regex              treat paths as regular expressions
    -L, -follow, -follow-symlinks    also extract the targets of symbolic links
    -missing, -missing-symlinks      stop if a target does not exist

How to extract
    -d, -dest DIR           extract to DIR [squashfs-root]
    -f, -force              extract to existing directories
    -no, -no-xattrs         leave out extended attributes
    -x, -xattrs             keep extended attributes
    -u, -user-xattrs        keep only user.* attributes
    -xattrs-include REGEX, -xattrs-exclude REGEX
                            keep or leave out attributes whose names match
    -all, -all-time TIME    set the times of all entries to TIME
    -p, -processors N       use N threads
    -i, -info               print each path; -li, -linfo: with attributes
    -q, -quiet              print nothing
    -n, -no-progress        show no progress
    -st, -strict-errors     exit with 1 after an error that is not fatal
    -no-exit, -no-exit-code exit with 0 after an error that is not fatal
    -UTC                    show times in UTC
    -ig, -ignore-errors, -da, -data-queue N, -fr, -frag-queue N, -percentage,
    -mem SIZE, -mem-percent N, -max-files N
                            accepted without effect
";

pub fn text(name: &str) -> String {
    format!("SYNTAX: {name} [OPTIONS] FILESYSTEM [PATH...]\n\n{OPTIONS}")
}
