//! The usage of `unsquashfs`, in forerun's own words.

const OPTIONS: &str = "\
Work (without one of these: extract)
    -l, -ls                 list paths
    -ll, -lls               list with attributes; -lln, -llnumeric: with numeric owners
    -lc, -llc               list only files and empty directories, without or with attributes
    -cat                    write files to standard output
    -s, -stat               describe the superblock
    -mkfs-time, -fstime     print when the image was made, in seconds since 1970
    -v, -version            print the version
    -h, -help               print this text

What to extract or list
    -o, -offset BYTES       the image begins there; K, M and G may follow
    -max, -max-depth N      descend N directories at most
    -e, -ef, -extract-file FILE      take the paths in FILE, one on a line
    -exc, -excf, -exclude-file FILE  leave out the paths in FILE
    -ex, -exclude-list PATH... \\;    leave out these paths
    -excludes               leave out the paths behind FILESYSTEM
    -no-wild, -no-wildcards paths are names, not patterns
    -r, -regex              paths are regular expressions
    -L, -follow, -follow-symlinks    take what symbolic links lead to as well
    -missing, -missing-symlinks      stop where one leads nowhere

How to extract
    -d, -dest DIR           extract to DIR [squashfs-root]
    -f, -force              fill directories that are there already
    -no, -no-xattrs         leave extended attributes out; -x, -xattrs: keep them
    -u, -user-xattrs        keep only those of users
    -p, -processors N       use N threads
    -i, -info               print each path; -li, -linfo: with attributes
    -q, -quiet              print nothing else
    -n, -no-progress        show no progress
    -st, -strict-errors     exit with 1 after errors that do not end the work
    -no-exit, -no-exit-code exit with 0 after these
    -UTC                    show times in UTC
    -ig, -ignore-errors, -da, -data-queue N, -fr, -frag-queue N   accepted without effect
";

pub fn text(name: &str) -> String {
    format!("SYNTAX: {name} [OPTIONS] FILESYSTEM [PATH...]\n\n{OPTIONS}")
}
