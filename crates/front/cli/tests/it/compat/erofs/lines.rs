//! Command lines of `mkfs.erofs`, `fsck.erofs` and `dump.erofs`, with the programs that use them.

/// Callers, and their command lines that make `OUT` from `tree`; both names are appended.
pub const MKFS: &[(&str, &str)] = &[
    ("plain", "mkfs.erofs"),
    ("mkosi", "mkfs.erofs --all-root --quiet"),
    (
        "mkosi, compression",
        "mkfs.erofs -zlz4hc,12 -C65536 --quiet -U 12345678-1234-1234-1234-123456789abc",
    ),
    (
        "systemd-repart",
        "mkfs.erofs -U 8e74911c-d94b-4040-9b57-ea9892f8ce8b",
    ),
    (
        "systemd-repart, compression",
        "mkfs.erofs -zlz4hc -U 8e74911c-d94b-4040-9b57-ea9892f8ce8b -T0 --quiet",
    ),
    (
        "Android, mkuserimg",
        "mkfs.erofs -zlz4hc,9 -T 1230768000 -U 12345678-1234-1234-1234-123456789abc --force-uid=0 --force-gid=0",
    ),
    (
        "Android, legacy",
        "mkfs.erofs -z lz4hc -C 262144 -Elegacy-compress --quiet",
    ),
    ("Buildroot", "mkfs.erofs -zlz4hc -x-1"),
    ("Buildroot", "mkfs.erofs -zlz4 -C 65536 -T1700000000"),
    (
        "Buildroot, reproducible",
        "mkfs.erofs --all-root -T1700000000 -d1",
    ),
    ("Yocto", "mkfs.erofs -zlz4hc"),
    ("Yocto", "mkfs.erofs"),
    (
        "kdump, dracut",
        "mkfs.erofs -x-1 -C65536 -Eztailpacking -zlz4hc,9",
    ),
    (
        "openSUSE, kiwi",
        "mkfs.erofs -zlz4hc,9 -C1048576 -Eztailpacking",
    ),
    ("Fedora, lorax", "mkfs.erofs -zlz4 -C65536 --ignore-mtime"),
    (
        "composefs-like tools",
        "mkfs.erofs --chunksize=4096 -Eforce-inode-extended,noinline_data",
    ),
    (
        "nydus-like tools",
        "mkfs.erofs --chunksize=65536 -Eforce-chunk-indexes -T5",
    ),
    (
        "archive scripts",
        "mkfs.erofs --exclude-path=usr/bin --exclude-regex=dang|^app --preserve-mtime",
    ),
    (
        "archive scripts",
        "mkfs.erofs -x 0 --max-extent-bytes=65536 -zlz4hc",
    ),
];

/// Command lines that make nothing and have the same exit code. If `true`, the first line of
/// standard error is also the same.
pub const MKFS_MISTAKES: &[(&str, bool)] = &[
    ("mkfs.erofs", true),
    ("mkfs.erofs OUT", true),
    ("mkfs.erofs OUT tree extra", true),
    ("mkfs.erofs OUT none", true),
    ("mkfs.erofs OUT list", false),
    ("mkfs.erofs none/OUT tree", false),
    ("mkfs.erofs -zfoo OUT tree", true),
    ("mkfs.erofs -zlz4hc,99 OUT tree", true),
    ("mkfs.erofs -C5000 OUT tree", true),
    ("mkfs.erofs -Uzz OUT tree", true),
    ("mkfs.erofs -Tzz OUT tree", true),
    ("mkfs.erofs --bogus OUT tree", true),
    ("mkfs.erofs -q OUT tree", true),
    ("mkfs.erofs -T", true),
];

/// Command lines on the images `plain.erofs` and `packed.erofs`, with the same standard output and
/// exit code.
pub const DUMP: &[&str] = &[
    "dump.erofs plain.erofs",
    "dump.erofs -s packed.erofs",
    "dump.erofs --path=/ packed.erofs",
    "dump.erofs --path=/usr/bin/tool packed.erofs",
    "dump.erofs --path=/usr/bin/tool plain.erofs",
    "dump.erofs --path /etc/passwd plain.erofs",
    "dump.erofs --path=/etc/.hidden packed.erofs",
    "dump.erofs --path=/AppRun plain.erofs",
    "dump.erofs --path=/fifo packed.erofs",
    "dump.erofs --path=/usr/bin --ls packed.erofs",
    "dump.erofs --ls --path=/ plain.erofs",
    "dump.erofs -s --path=/etc/empty plain.erofs",
    "dump.erofs -S plain.erofs",
    "dump.erofs -s -S packed.erofs",
    "dump.erofs -e --path=/usr/bin/tool plain.erofs",
    "dump.erofs -e --path=/usr/bin/tool packed.erofs",
    "dump.erofs -e --path=/usr/bin/various packed.erofs",
    "dump.erofs --path=/etc/passwd -e packed.erofs",
    "dump.erofs -e --ls --path=/usr plain.erofs",
    "dump.erofs -e --path=/fifo plain.erofs",
    "dump.erofs -e plain.erofs",
    "dump.erofs --path=/none plain.erofs",
    "dump.erofs none",
    "dump.erofs",
    "dump.erofs list",
    "dump.erofs plain.erofs extra",
    "dump.erofs -q plain.erofs",
];

/// Command lines on the same images, with the same exit code and tree in `out`.
pub const FSCK: &[&str] = &[
    "fsck.erofs plain.erofs",
    "fsck.erofs packed.erofs",
    "fsck.erofs --extract packed.erofs",
    "fsck.erofs --extract=out plain.erofs",
    "fsck.erofs --extract=out --preserve packed.erofs",
    "fsck.erofs --extract=out --no-preserve packed.erofs",
    "fsck.erofs --extract=out --preserve-owner --no-preserve-perms packed.erofs",
    "fsck.erofs --extract=full packed.erofs",
    "fsck.erofs --extract=out/a/b packed.erofs",
    "fsck.erofs --extract=/ packed.erofs",
    "fsck.erofs none",
    "fsck.erofs list",
    "fsck.erofs",
    "fsck.erofs plain.erofs extra",
    "fsck.erofs -q plain.erofs",
];
