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

/// Callers with options of newer versions, and options of 1.5 that make an image with the same tree.
pub const MKFS_NEWER: &[(&str, &str, &str)] = &[
    ("archiso", "-zlzma,109 -E ztailpacking", ""),
    (
        "archiso, baseline",
        "-zlzma,109 -E ztailpacking,fragments,dedupe",
        "",
    ),
    (
        "Arch, live system in RAM",
        "--quiet -zlzma,109,dictsize=8388608 -Efragments,dedupe,force-inode-extended,ztailpacking -C1048576 -T0",
        "-T0",
    ),
    (
        "Arch, live system in RAM",
        "-Efragments,dedupe,force-inode-extended,ztailpacking -T0 --quiet -zlzma,1,dictsize=8388608 -C1048576",
        "-T0",
    ),
    (
        "Fedora CoreOS, assembler",
        "-zlzma,level=6 -Eall-fragments,fragdedupe=inode -C1048576 --quiet",
        "",
    ),
    (
        "Fedora CoreOS, development",
        "-zlzma,level=1 -Efragments -C1048576 --quiet",
        "",
    ),
    (
        "Fedora, kiwi",
        "-zlzma,6 -Eall-fragments,fragdedupe=inode -C131072",
        "",
    ),
    (
        "mkosi, subsystems",
        "-zzstd,5 -C 65536 -E all-fragments,dedupe,fragdedupe=inode -L rootfs",
        "",
    ),
    (
        "bootc, segments",
        "-zzstd,15 -C 65536 -E all-fragments,dedupe,fragdedupe=inode -L etc",
        "",
    ),
    (
        "titanoboa",
        "-d0 --quiet --all-root -zlz4hc,6 -Eall-fragments,fragdedupe=inode -C1048576",
        "--all-root",
    ),
    (
        "microvm.nix",
        "-zlz4hc -Eztailpacking -Efragments -Ededupe",
        "",
    ),
    ("microvm.nix, fast", "-zlz4 -Eztailpacking", ""),
    (
        "linyaps",
        "-zlz4hc -Efragments,dedupe,ztailpacking -C1048576 -b4096",
        "",
    ),
    (
        "NixOS, sysext",
        "-d5 -zlz4 -Efragments,ztailpacking,dedupe --ignore-mtime -Uclear -T0 -C65536",
        "-T0",
    ),
    (
        "Android, super images",
        "-zlz4hc -T 1230768000 --mount-point=system",
        "-T1230768000",
    ),
    (
        "Android, super images",
        "-z lz4hc,9 -T 0 --mount-point /product",
        "-T0",
    ),
    (
        "Rockchip images",
        "-zlz4hc,12 -Efragments -Ededupe -Eztailpacking",
        "",
    ),
    (
        "DwarFS, comparisons",
        "-C1048576 -Eztailpacking,fragments,all-fragments,dedupe -zlzma,9",
        "",
    ),
    (
        "systemd-repart",
        "-zlz4hc --hard-dereference -U 8e74911c-d94b-4040-9b57-ea9892f8ce8b",
        "",
    ),
    (
        "Kata, guest image",
        "-T1700000000 --mkfs-time --sort=none",
        "",
    ),
    ("times", "-T5 --mkfs-time --all-time", "-T5"),
    (
        "user namespaces",
        "--uid-offset=1000 --gid-offset=2000",
        "--force-uid=1000 --force-gid=2000",
    ),
    (
        "installers in Rust",
        "--all-root -T0 -U 8e74911c-d94b-4040-9b57-ea9892f8ce8b --workers=1 -z zstd -C262144 -Eztailpacking -L root",
        "--all-root -T0",
    ),
    (
        "initos",
        "--all-root --force-uid=0 -T0 -zlz4",
        "--all-root -T0",
    ),
    ("phone images", "-z lz4 -d 2 -T 1740000000", "-T1740000000"),
    (
        "confined programs",
        "-x1 --all-root -U clear -T 0",
        "--all-root -T0",
    ),
    (
        "large images",
        "-E48bit -zdeflate,level=9,dictsize=32768",
        "",
    ),
    ("large images", "-E^48bit -zzstd,level=3,dictsize=65536", ""),
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
