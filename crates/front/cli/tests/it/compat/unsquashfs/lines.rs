//! Command lines of `unsquashfs`.

/// Callers with their command lines, in a directory beside the image `../a.sqsh`.
pub const CALLERS: &[(&str, &[&str])] = &[
    (
        "snapd, Unpack",
        &["-n", "-f", "-d", "out", "../a.sqsh", "*"],
    ),
    (
        "snapd, Unpack",
        &["-n", "-f", "-d", "out", "../a.sqsh", "etc"],
    ),
    (
        "snapd, ReadFile",
        &["-n", "-i", "-d", "unpack", "../a.sqsh", "etc/passwd"],
    ),
    (
        "snapd, ListDir",
        &["-no-progress", "-dest", "_", "-l", "../a.sqsh", "etc"],
    ),
    (
        "snapd, Walk",
        &["-no-progress", "-dest", ".", "-ll", "../a.sqsh"],
    ),
    (
        "snapd, Walk",
        &["-no-progress", "-dest", ".", "-ll", "../a.sqsh", "usr/bin"],
    ),
    ("snapd, BuildDate", &["-n", "-s", "../a.sqsh"]),
    (
        "snapd, Unpack of a pattern",
        &["-n", "-f", "-d", "out", "../a.sqsh", "usr/bin/*"],
    ),
    (
        "snapd, ReadLink",
        &["-n", "-i", "-d", "unpack", "../a.sqsh", "AppRun"],
    ),
    (
        "snapd, ListDir of the root",
        &["-no-progress", "-dest", "_", "-l", "../a.sqsh", "."],
    ),
    (
        "snapd, checks of what was built",
        &["../a.sqsh", "etc/passwd", "usr/bin/"],
    ),
    (
        "snapd, tests of Core",
        &["-no-progress", "-d", "unpack", "../a.sqsh"],
    ),
    (
        "snapd, images for tests",
        &["-n", "-d", "snap-core", "../a.sqsh"],
    ),
    ("Apptainer", &["-user-xattrs", "-d", "sandbox", "../a.sqsh"]),
    ("Apptainer", &["-f", "-d", "sandbox", "../a.sqsh"]),
    (
        "Apptainer",
        &[
            "-no-xattrs",
            "-f",
            "-d",
            "sandbox",
            "-processors",
            "2",
            "../a.sqsh",
        ],
    ),
    // The program then runs in a container, and the expression excludes /dev.
    (
        "Apptainer, sandbox of a user",
        &[
            "-user-xattrs",
            "-r",
            "-d",
            "sandbox",
            "../a.sqsh",
            r"^(.{0}[^d]|.{1}[^e]|.{2}[^v]|.{3}[^\x2f]).*$",
        ],
    ),
    (
        "Apptainer, sandbox that has files",
        &["-no-xattrs", "-r", "-f", "-d", ".", "../a.sqsh", "^etc$"],
    ),
    (
        "Apptainer, files of a definition",
        &[
            "-f",
            "-d",
            "sandbox",
            "../a.sqsh",
            "etc/passwd",
            "usr/bin/tool",
        ],
    ),
    (
        "charliecloud, ch-convert",
        &["-f", "-d", "image", "-user-xattrs", "../a.sqsh"],
    ),
    ("charliecloud, archive_grep", &["-l", "../a.sqsh"]),
    ("enroot", &["-user-xattrs", "-d", "rootfs", "../a.sqsh"]),
    ("enroot", &["-cat", "../a.sqsh", "/etc/passwd"]),
    ("LXD", &["-f", "-d", "rootfs", "-n", "../a.sqsh"]),
    (
        "LXD, little memory",
        &[
            "-f",
            "-d",
            "rootfs",
            "-n",
            "-da",
            "64",
            "-fr",
            "64",
            "-p",
            "1",
            "../a.sqsh",
        ],
    ),
    ("unblob", &["-no-exit-code", "-f", "-d", "out", "../a.sqsh"]),
    ("binwalk", &["-d", "squashfs-root", "../a.sqsh"]),
    (
        "firmware scripts",
        &[
            "-no-xattrs",
            "-ignore-errors",
            "-d",
            "rootfs",
            "-f",
            "../a.sqsh",
        ],
    ),
    ("clara", &["-li", "-f", "-d", "out", "../a.sqsh"]),
    ("lorax", &["-n", "-l", "../a.sqsh"]),
    (
        "lorax",
        &[
            "-no-xattrs",
            "-follow",
            "-no-progress",
            "-d",
            "stage2",
            "../a.sqsh",
            "/etc/passwd",
            "/var/none",
        ],
    ),
    ("dracut", &["-no-xattrs", "-f", "-d", ".", "../a.sqsh"]),
    (
        "live images",
        &[
            "-processors",
            "1",
            "-no-xattrs",
            "-no-exit-code",
            "-f",
            "-d",
            "rootfs",
            "../a.sqsh",
        ],
    ),
    ("calamares", &["-l", "../a.sqsh"]),
    ("live-build", &["-f", "-d", "chroot", "../a.sqsh"]),
    ("Container Linux", &["-no-xattrs", "../a.sqsh"]),
    (
        "appimaged",
        &["-f", "-n", "-ll", "-o", "4096", "-d", "", "../b.AppImage"],
    ),
    (
        "appimaged",
        &[
            "-f",
            "-n",
            "-o",
            "4096",
            "-d",
            "out",
            "../b.AppImage",
            "*.desktop",
        ],
    ),
    (
        "AppImage scripts",
        &["-q", "-o", "4096", "-d", "App", "../b.AppImage"],
    ),
    (
        "AppImage scripts",
        &["-no-progress", "-o", "4k", "-d", "AppDir", "../b.AppImage"],
    ),
    (
        "AppImage scripts",
        &["-offset", "4096", "-ll", "../b.AppImage", "usr"],
    ),
    ("OpenWrt scripts", &["-s", "../a.sqsh"]),
    (
        "Slurm scripts",
        &["-n", "-f", "-p", "16", "-d", "out", "../a.sqsh"],
    ),
    ("reproducibility scripts", &["-mkfs-time", "../a.sqsh"]),
    ("reproducibility scripts", &["-fstime", "../a.sqsh"]),
    ("reproducibility scripts", &["-UTC", "-lln", "../a.sqsh"]),
    (
        "archive scripts",
        &["-q", "-n", "-x", "-d", "out", "../a.sqsh"],
    ),
    ("archive scripts", &["-llc", "../a.sqsh"]),
    ("archive scripts", &["-lc", "../a.sqsh", "etc"]),
    ("archive scripts", &["-lls", "-max-depth", "1", "../a.sqsh"]),
    (
        "archive scripts",
        &["-ls", "../a.sqsh", "usr/*/to?l", "[e]tc"],
    ),
    (
        "archive scripts",
        &["-l", "../a.sqsh", "usr/bin/@(tool|none)"],
    ),
    (
        "archive scripts",
        &["-l", "-r", "../a.sqsh", "usr/bin/.*2$"],
    ),
    ("archive scripts", &["-l", "-no-wild", "../a.sqsh", "usr/*"]),
    ("archive scripts", &["-l", "-ef", "../list", "../a.sqsh"]),
    ("archive scripts", &["-l", "-exc", "../list", "../a.sqsh"]),
    (
        "archive scripts",
        &["-n", "-excludes", "-d", "out", "../a.sqsh", "usr", "fifo"],
    ),
    (
        "archive scripts",
        &["-n", "-ex", "etc", "fifo", ";", "-d", "out", "../a.sqsh"],
    ),
    (
        "archive scripts",
        &["-n", "-max", "2", "-d", "out", "../a.sqsh"],
    ),
    (
        "archive scripts",
        &["-q", "-n", "-i", "-d", "out", "../a.sqsh", "usr/none"],
    ),
    (
        "archive scripts",
        &["-cat", "../a.sqsh", "etc/*", "app.desktop"],
    ),
];

pub const MISTAKES: &[&[&str]] = &[
    &["../none.sqsh"],
    &["-l", "../none.sqsh"],
    &["../text"],
    &["-s", "../text"],
    &["-o", "1", "-l", "../a.sqsh"],
    &["-o", "x", "../a.sqsh"],
    &["-p", "0", "../a.sqsh"],
    &["-max", "x", "../a.sqsh"],
    &["-d"],
    &["-ex", "a"],
    &["-ef", "../none", "../a.sqsh"],
    &["-l", "../a.sqsh", "/"],
    &["-n", "../a.sqsh", "/"],
    &["-n", "-follow", "-missing", "../a.sqsh", "etc/none"],
    &["-cat", "../a.sqsh", "etc"],
    &["-cat", "../a.sqsh", "none", "etc/passwd"],
    &["-cat", "../a.sqsh", "fifo"],
    &["-follow", "-missing", "-l", "../a.sqsh", "etc/none"],
];
