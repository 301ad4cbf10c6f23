//! Command lines of `mksquashfs` and `sqfstar`, with the programs that use them. `OUT` is the
//! image.

/// A command line, which runs in the directory of the fixture.
pub struct Line {
    pub caller: &'static str,
    /// File on standard input; empty for none.
    pub stdin: &'static str,
    /// Words, separated by spaces; `~` means a space within a word.
    pub words: &'static str,
    /// Words for the same image that 4.5.1 has too, where it has not those of `words`.
    pub older: &'static str,
}

pub const fn line(caller: &'static str, words: &'static str) -> Line {
    Line {
        caller,
        stdin: "",
        words,
        older: "",
    }
}

/// A command line of 4.6 or newer, and one of 4.5.1 that makes the same image.
const fn newer(caller: &'static str, words: &'static str, older: &'static str) -> Line {
    Line {
        caller,
        stdin: "",
        words,
        older,
    }
}

const fn fed(caller: &'static str, stdin: &'static str, words: &'static str) -> Line {
    Line {
        caller,
        stdin,
        words,
        older: "",
    }
}

pub const CALLERS: &[Line] = &[
    line(
        "Apptainer, Mksquashfs.Create",
        "mksquashfs tree OUT -noappend",
    ),
    line(
        "Apptainer, build as user",
        "mksquashfs tree OUT -noappend -all-root",
    ),
    line(
        "Apptainer, build with mksquashfs args",
        "mksquashfs tree OUT -noappend -comp zstd -Xcompression-level 3 -processors 1",
    ),
    line(
        "Apptainer, overlay create",
        "mksquashfs tree/etc OUT -noappend -mem 1G -processors 2",
    ),
    line(
        "Singularity, mksquashfs procs and mem",
        "mksquashfs tree OUT -noappend -comp gzip -processors 2 -mem 512M",
    ),
    line(
        "mkosi",
        "mksquashfs tree OUT -no-progress -quiet -noappend -comp zstd -Xcompression-level 3",
    ),
    line(
        "mkosi, xattrs",
        "mksquashfs tree OUT -noappend -xattrs -b 1M -comp xz",
    ),
    line(
        "systemd-repart, mkfs",
        "mksquashfs tree OUT -noappend -no-xattrs -quiet",
    ),
    line(
        "systemd-repart, compression",
        "mksquashfs tree OUT -noappend -all-root -comp zstd -Xcompression-level 1 -quiet",
    ),
    line(
        "snapcraft, snap pack",
        "mksquashfs tree OUT -noappend -comp xz -no-fragments -no-progress",
    ),
    line(
        "snapd, Build",
        "mksquashfs . OUT -noappend -comp xz -no-fragments -no-progress -all-root -no-xattrs -wildcards -e !(tree)",
    ),
    line(
        "snapd, Build of an app",
        "mksquashfs tree OUT -noappend -comp lzo -no-fragments -no-progress -all-root -no-xattrs",
    ),
    line(
        "snapd, Build with excludes",
        "mksquashfs tree OUT -noappend -comp xz -no-fragments -no-progress -wildcards -ef list -all-root -no-xattrs",
    ),
    line(
        "snapd, Build of a base with excludes",
        "mksquashfs tree OUT -noappend -comp xz -no-fragments -no-progress -wildcards -ef list -ef names",
    ),
    line(
        "snapd, tests of packing",
        "mksquashfs tree OUT -comp gzip -no-fragments -no-progress",
    ),
    line(
        "snapd, tests of packing",
        "mksquashfs tree OUT -comp gzip -Xcompression-level 1 -no-fragments -no-progress",
    ),
    line(
        "snapd, tests of Core",
        "mksquashfs tree OUT -comp xz -no-fragments -no-progress",
    ),
    line("snapd, tests of wrong files", "mksquashfs tree OUT"),
    line(
        "live-build, binary_rootfs",
        "mksquashfs tree OUT -no-progress -comp xz -Xbcj x86 -noappend",
    ),
    line(
        "live-build, excludes",
        "mksquashfs tree OUT -quiet -wildcards -ef list -comp gzip -noappend",
    ),
    line(
        "live-build, without a chroot",
        "mksquashfs tree OUT -no-progress -b 1M -e etc/empty",
    ),
    line(
        "live-wrapper",
        "mksquashfs tree OUT -comp xz -e tree/etc/empty -no-progress",
    ),
    line(
        "casper, Ubuntu images",
        "mksquashfs tree OUT -no-progress -xattrs -comp xz",
    ),
    line(
        "Cubic",
        "mksquashfs tree OUT -noappend -comp xz -wildcards -e proc/* proc/.* run/* tmp/*",
    ),
    line(
        "penguins-eggs",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 3 -b 256K -noappend -e etc/empty",
    ),
    line(
        "archiso",
        "mksquashfs tree OUT -noappend -comp xz -Xbcj x86 -b 1M -Xdict-size 1M -no-progress -quiet",
    ),
    line(
        "archiso, baseline",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 15 -b 1M -noappend -no-progress",
    ),
    line("lorax, rootfs", "mksquashfs tree OUT -comp xz -Xbcj x86"),
    line(
        "lorax, live",
        "mksquashfs tree OUT -comp zstd -b 1M -Xcompression-level 20 -no-progress",
    ),
    line(
        "kiwi",
        "mksquashfs tree OUT -noappend -b 1M -comp xz -Xbcj x86",
    ),
    line(
        "kiwi, excludes",
        "mksquashfs tree OUT -noappend -comp gzip -wildcards -e boot ...~.cache",
    ),
    line(
        "osbuild, org.osbuild.squashfs",
        "mksquashfs tree OUT -comp xz -Xbcj x86 -b 1M -e etc/empty",
    ),
    line(
        "dracut, squash module",
        "mksquashfs tree OUT -no-xattrs -no-exports -noappend -no-recovery -always-use-fragments -Xcompression-level 9 -comp zstd -no-progress",
    ),
    line(
        "dracut, squash module",
        "mksquashfs tree OUT -no-xattrs -no-exports -noappend -no-recovery -always-use-fragments -no-progress",
    ),
    line(
        "kdump-tools",
        "mksquashfs tree OUT -quiet -no-progress -noappend -comp lz4",
    ),
    line(
        "debootstick",
        "mksquashfs tree OUT -comp lz4 -Xhc -noappend",
    ),
    line(
        "Calamares scripts",
        "mksquashfs tree/usr tree/etc OUT -noappend -no-progress",
    ),
    line(
        "enroot export",
        "mksquashfs tree OUT -no-progress -processors 2 -noappend -comp lzo -b 131072",
    ),
    line(
        "enroot import",
        "mksquashfs tree OUT -all-root -no-progress -processors 1 -noappend -comp zstd -Xcompression-level 1",
    ),
    line(
        "pyxis",
        "mksquashfs tree OUT -no-progress -no-xattrs -noappend",
    ),
    line(
        "charliecloud, ch-convert",
        "mksquashfs tree OUT -b 65536 -noappend -all-root -pf mounts -e tree/ch/git -e tree/ch/git.pickle",
    ),
    line(
        "charliecloud, ch-convert --xattrs",
        "mksquashfs tree OUT -xattrs -b 65536 -noappend -all-root -pf mounts -e tree/ch/git -e tree/ch/git.pickle",
    ),
    line(
        "podman-hpc, migrate",
        "mksquashfs tree OUT -comp lz4 -xattrs -noappend",
    ),
    line(
        "podman-hpc, excludes",
        "mksquashfs tree OUT -comp lz4 -xattrs -e etc/empty",
    ),
    line(
        "sarus",
        "mksquashfs tree OUT -noappend -no-progress -keep-as-directory",
    ),
    line(
        "LXD, image pack",
        "mksquashfs tree OUT -noappend -comp gzip -b 1M -no-progress -no-recovery",
    ),
    line(
        "LXD, image of a container",
        "mksquashfs tree OUT -noappend -processors 1 -mem 256M -comp xz",
    ),
    line(
        "distrobuilder",
        "mksquashfs tree OUT -noappend -b 1M -no-exports -no-progress -no-recovery -comp xz",
    ),
    line(
        "distrobuilder, compressor",
        "mksquashfs tree OUT -noappend -b 1M -no-exports -no-progress -no-recovery -comp zstd -Xcompression-level 22",
    ),
    line(
        "appimagetool",
        "mksquashfs tree OUT -offset 4096 -comp gzip -root-owned -noappend",
    ),
    line(
        "appimagetool, new",
        "mksquashfs tree OUT -root-owned -noappend -comp zstd -b 1M",
    ),
    line(
        "appimagetool, time",
        "mksquashfs tree OUT -offset 188392 -comp xz -Xdict-size 100% -b 16384 -root-owned -noappend -mkfs-time 0",
    ),
    line(
        "go-appimage",
        "mksquashfs tree OUT -offset 1M -root-owned -noappend -comp zstd -mkfs-time 1000000000",
    ),
    line(
        "linuxdeploy scripts",
        "mksquashfs tree OUT -root-owned -noappend -no-xattrs -quiet",
    ),
    line(
        "OpenWrt, image.mk",
        "mksquashfs tree OUT -nopad -noappend -root-owned -comp xz -Xbcj arm -b 256k -p /dev~d~755~0~0 -p /dev/console~c~600~0~0~5~1 -processors 1",
    ),
    line(
        "OpenWrt, image.mk",
        "mksquashfs tree OUT -nopad -noappend -root-owned -comp xz -Xdict-size 64k -b 64k -fstime 1700000000",
    ),
    line(
        "Buildroot",
        "mksquashfs tree OUT -noappend -processors 1 -b 128K -comp lz4 -Xhc",
    ),
    line(
        "Buildroot, reproducible",
        "mksquashfs tree OUT -noappend -processors 1 -mkfs-time 1700000000 -all-time 1700000000",
    ),
    line(
        "Yocto, image_types",
        "mksquashfs tree OUT -noappend -comp xz",
    ),
    line(
        "Yocto, image_types",
        "mksquashfs tree OUT -noappend -comp lzo",
    ),
    line(
        "ptxdist",
        "mksquashfs tree OUT -noappend -b 131072 -comp gzip -p dev~d~0755~0~0",
    ),
    line(
        "genimage",
        "mksquashfs tree OUT -b 65536 -noappend -comp gzip",
    ),
    line(
        "RAUC",
        "mksquashfs tree OUT -all-root -noappend -no-progress -no-xattrs",
    ),
    line(
        "RAUC, arguments",
        "mksquashfs tree OUT -all-root -noappend -no-progress -no-xattrs -comp zstd -Xcompression-level 5",
    ),
    line(
        "SWUpdate scripts",
        "mksquashfs tree OUT -force-uid 0 -force-gid 0 -no-xattrs -noappend",
    ),
    line(
        "Firmware Mod Kit",
        "mksquashfs tree OUT -noappend -root-owned -b 131072 -comp lzma",
    ),
    line(
        "Firmware scripts",
        "mksquashfs tree OUT -comp xz -b 262144 -no-xattrs -noappend -always-use-fragments -all-root",
    ),
    line(
        "Firmware scripts",
        "mksquashfs tree OUT -noappend -pf devices -all-root",
    ),
    line(
        "Tails",
        "mksquashfs tree OUT -noappend -comp xz -Xdict-size 100% -sort sort -no-exports -reproducible",
    ),
    line(
        "Whonix scripts",
        "mksquashfs tree OUT -comp xz -noappend -mkfs-time 1231006505 -all-time 1231006505",
    ),
    line(
        "Puppy Linux",
        "mksquashfs tree OUT -comp xz -Xbcj x86 -b 256K -noappend",
    ),
    line(
        "Slax",
        "mksquashfs tree OUT -comp xz -b 1024K -Xbcj x86 -always-use-fragments -noappend",
    ),
    line(
        "Slax, keep",
        "mksquashfs tree OUT -comp xz -b 1024K -always-use-fragments -keep-as-directory",
    ),
    line(
        "Porteus, dir2xzm",
        "mksquashfs tree OUT -comp xz -b 256K -Xbcj x86 -noappend -no-progress",
    ),
    line(
        "Clonezilla",
        "mksquashfs tree OUT -no-progress -info -noappend",
    ),
    line(
        "Kano, recovery",
        "mksquashfs tree OUT -b 1048576 -comp xz -Xdict-size 100%",
    ),
    line(
        "Flatcar, Container Linux",
        "mksquashfs tree OUT -noappend -xattrs -comp zstd -Xcompression-level 1",
    ),
    line(
        "Talos",
        "mksquashfs tree OUT -all-root -noappend -comp zstd -Xcompression-level 18 -no-progress -all-time 1 -mkfs-time 1",
    ),
    line("linuxkit", "mksquashfs tree OUT -no-fragments -noappend"),
    line(
        "eve-os",
        "mksquashfs tree OUT -noappend -comp gzip -no-recovery",
    ),
    line(
        "NixOS, make-squashfs",
        "mksquashfs tree/usr tree/etc OUT -no-hardlinks -keep-as-directory -all-root -b 1048576 -comp zstd -Xcompression-level 6 -processors 2 -no-recovery",
    ),
    line(
        "Android-x86 scripts",
        "mksquashfs tree OUT -noappend -no-duplicates -comp lz4",
    ),
    line(
        "tar-like scripts",
        "mksquashfs tree/etc/passwd tree/usr/bin/tool OUT -no-progress",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -noappend -one-file-system -noD -noF",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -noI -noId -noX -no-duplicates -no-sparse -noappend",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -noInodeCompression -noDataCompression -noFragmentCompression -noXattrCompression -noIdTableCompression",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -exit-on-error -throttle 10 -limit 90 -quiet",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -regex -e usr/bin/t.*2$ ...~^passwd",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -wildcards -e usr/*/tool2 ...~.hid* f*",
    ),
    line(
        "backup scripts",
        "mksquashfs tree OUT -e usr/bin none ./tree/fifo",
    ),
    line("backup scripts", "mksquashfs tree OUT -ef names -quiet"),
    line(
        "backup scripts",
        "mksquashfs tree tree etc OUT -no-progress",
    ),
    line("backup scripts", "mksquashfs tree-link OUT -no-progress"),
    line(
        "backup scripts",
        "mksquashfs tree etc OUT -e tree/usr etc/x -no-progress",
    ),
    line(
        "root scripts",
        "mksquashfs tree OUT -root-mode 755 -root-uid 5 -root-gid 6 -root-time 77",
    ),
    line(
        "root scripts",
        "mksquashfs tree OUT -all-root -root-uid 7 -force-gid 9 -root-mode 1755",
    ),
    line(
        "root scripts",
        "mksquashfs tree OUT -force-uid nobody -all-root -no-tailends -tailends",
    ),
    line(
        "devices",
        "mksquashfs - OUT -p /~d~755~0~0 -p dev~d~755~0~0 -p dev/null~c~666~0~0~1~3 -p dev/log~s~777~0~0~/run/log -p q~i~644~0~0~s",
    ),
    line(
        "devices",
        "mksquashfs tree OUT -p etc/passwd~m~600~7~8 -p etc/motd~l~list -p etc/also~L~etc/motd -p D~D~100~755~1~2",
    ),
    line(
        "devices",
        "mksquashfs tree OUT -p /~m~700~0~0 -p etc/passwd~s~777~0~0~x -p none~m~644~0~0 -p usr~d~700~0~0",
    ),
    line(
        "devices",
        "mksquashfs tree OUT -e etc/passwd -p etc/passwd~d~750~0~0 -p x~c~600~0~0~1~2 -p x~b~600~0~0~1~3",
    ),
    line(
        "devices",
        "mksquashfs tree OUT -all-time 50 -p x~C~60~600~1~2~5~1 -root-time 9",
    ),
    line(
        "block sizes",
        "mksquashfs tree OUT -b 4K -always-use-fragments -comp lzo -Xalgorithm lzo1x_999",
    ),
    line(
        "gzip options",
        "mksquashfs tree OUT -comp gzip -Xcompression-level 1 -Xwindow-size 12 -Xstrategy default,huffman_only",
    ),
    line(
        "xz options",
        "mksquashfs tree OUT -comp xz -Xbcj x86,powerpc,arm,armthumb,sparc -Xdict-size 37.5%",
    ),
    line(
        "OPK packages",
        "mksquashfs tree/usr tree/etc tree/app.desktop OUT -all-root -no-xattrs -noappend -no-exports",
    ),
    line(
        "squashfs-tools-ng, tests",
        "mksquashfs tree OUT -no-xattrs -noappend -all-root -mkfs-time 0",
    ),
    line(
        "router images",
        "mksquashfs tree OUT -comp xz -Xbcj arm -b 256K -no-xattrs -noappend",
    ),
    line(
        "RISC-V emulators",
        "mksquashfs tree OUT -comp xz -b 1M -no-xattrs -noappend",
    ),
    line(
        "live systems of containers",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 22 -exit-on-error -no-progress",
    ),
    line(
        "ChromiumOS, modem firmware",
        "mksquashfs tree OUT -all-root -noappend -no-recovery -no-exports -exit-on-error -comp zstd -Xcompression-level 22 -b 1M -root-mode 0755 -no-progress",
    ),
    line(
        "camera firmware",
        "mksquashfs tree OUT -comp xz -b 262144 -noappend -no-progress -no-exports -all-root -mkfs-time 0 -all-time 0",
    ),
    line(
        "bare-metal demos",
        "mksquashfs tree/usr tree/etc OUT -quiet -mkfs-time 0 -all-time 0 -all-root -noappend -no-exports -no-progress -comp lzo",
    ),
    line(
        "AppImages by scripts",
        "mksquashfs tree OUT -root-owned -noappend -no-progress -quiet -comp gzip -b 128K -mkfs-time 0 -all-time 0",
    ),
    line(
        "Slax bundles",
        "mksquashfs tree OUT -comp xz -b 1024K -Xbcj x86 -always-use-fragments -mkfs-time 0 -all-time 0",
    ),
    line(
        "confidential VMs",
        "mksquashfs tree OUT -comp zstd -noappend -no-xattrs -all-root -mkfs-time 0 -all-time 0 -root-time 0 -no-progress -quiet",
    ),
    line(
        "Alpine, modloop",
        "mksquashfs tree OUT -b 1048576 -comp xz -Xdict-size 100%",
    ),
    line(
        "Alpine, modloop of a Raspberry Pi",
        "mksquashfs tree OUT -b 131072 -comp xz -Xdict-size 100%",
    ),
    line(
        "cloud images",
        "mksquashfs tree OUT -b 1048576 -comp xz -Xdict-size 100% -regex -e usr/bin/.* -e etc/.*",
    ),
    line(
        "casper, by scripts",
        "mksquashfs tree OUT -noappend -no-duplicates -no-recovery -wildcards -comp xz -b 1M -Xdict-size 100% -e usr/bin/* -e etc/.*",
    ),
    line(
        "kernel modules",
        "mksquashfs tree/usr tree/etc OUT -comp xz -b 1048576 -Xdict-size 100% -Xbcj x86 -noappend -all-root",
    ),
    line(
        "NixOS, initial disks",
        "mksquashfs tree OUT -quiet -comp xz -b 1048576 -Xdict-size 100% -all-root",
    ),
    line(
        "compilers in one file",
        "mksquashfs tree OUT -comp xz -Xbcj x86 -Xdict-size 1M -b 1M -always-use-fragments -all-root -no-xattrs -noappend -processors 2",
    ),
    line(
        "live systems by scripts",
        "mksquashfs tree OUT -comp xz -Xbcj x86 -Xdict-size 1M -b 1M -no-exports -no-recovery -always-use-fragments",
    ),
    line(
        "live systems, excludes first",
        "mksquashfs tree OUT -e usr -comp xz -Xbcj x86 -b 1M",
    ),
    line(
        "live systems, excludes",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 19 -noappend -e usr -wildcards -e etc/*",
    ),
    line(
        "rk3399 images",
        "mksquashfs tree OUT -comp lz4 -Xhc -b 131072",
    ),
    line(
        "Aboriginal Linux",
        "mksquashfs tree OUT -noappend -all-root -no-progress -p /dev~d~755~0~0 -p /dev/console~c~666~0~0~5~1",
    ),
    line(
        "desktop images",
        "mksquashfs tree OUT -comp xz -b 1M -no-exports -noappend -quiet",
    ),
    line(
        "desktop images",
        "mksquashfs tree OUT -comp xz -no-recovery",
    ),
    line(
        "OTA layers",
        "mksquashfs tree OUT -noappend -e layer.squashfs",
    ),
    line(
        "display firmware",
        "mksquashfs tree OUT -noappend -comp xz -b 131072 -no-progress -processors 2 -all-root",
    ),
    line(
        "driver bundles",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 19 -b 1M -all-root -no-xattrs -mkfs-time 0 -all-time 0 -noappend -quiet -no-progress",
    ),
    fed("docker export", "tree.tar", "sqfstar OUT"),
    fed(
        "docker export",
        "tree.tar",
        "sqfstar -comp lz4 -Xhc -b 1M -no-progress OUT",
    ),
    fed(
        "umoci scripts",
        "tree.tar",
        "sqfstar -all-root -no-xattrs -quiet OUT etc fifo",
    ),
    fed(
        "nspawn scripts",
        "tree.tar",
        "sqfstar -force -exports -no-tailends OUT",
    ),
    fed(
        "archives",
        "tree.tar",
        "sqfstar -regex -root-mode 700 -mkfs-time 5 OUT ^et ...~^zer",
    ),
    fed(
        "archives",
        "part.tar",
        "mksquashfs - OUT -tar -comp lz4 -noappend",
    ),
    fed(
        "archives",
        "part.tar",
        "mksquashfs - OUT -tar -exports -no-fragments",
    ),
];

/// Command lines with options of 4.6 and 4.7.
pub const NEWER: &[Line] = &[
    newer(
        "backup of a root, in Go",
        "mksquashfs tree OUT -comp lz4 -b 1M -processors 8 -noappend -no-progress -exit-on-error -one-file-system-x -xattrs -xattrs-exclude ^(trusted|user)\\.overlay\\. -wildcards -e etc/e*",
        "mksquashfs tree OUT -comp lz4 -b 1M -processors 8 -noappend -no-progress -exit-on-error -xattrs -wildcards -e etc/e*",
    ),
    newer(
        "live images of snapshots",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 3 -mkfs-time 1700000000 -all-time 1700000000 -xattrs-exclude ^trusted.overlay.(uuid|origin)$ -noappend -no-progress -e etc/empty",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 3 -mkfs-time 1700000000 -all-time 1700000000 -noappend -no-progress -e etc/empty",
    ),
    newer(
        "Flatcar, sysext",
        "mksquashfs tree OUT -noappend -xattrs-exclude ^btrfs. -comp zstd",
        "mksquashfs tree OUT -noappend -comp zstd",
    ),
    newer(
        "incus, image of a container",
        "mksquashfs tree OUT -noappend -xattrs-exclude ^user\\. -comp gzip -b 1M -no-progress -no-recovery",
        "mksquashfs tree OUT -noappend -no-xattrs -comp gzip -b 1M -no-progress -no-recovery",
    ),
    newer(
        "Talos, extensions",
        "mksquashfs tree OUT -all-root -noappend -comp zstd -Xcompression-level 3 -no-progress -xattrs-exclude .* -p etc/passwd~x~user.note=a",
        "mksquashfs tree OUT -all-root -noappend -comp zstd -Xcompression-level 3 -no-progress",
    ),
    newer(
        "labels",
        "mksquashfs tree OUT -xattrs-include ^security -noappend",
        "mksquashfs tree OUT -no-xattrs -noappend",
    ),
    newer(
        "labels",
        "mksquashfs tree OUT -xattrs-exclude user -xattrs-add user.note=added -noappend",
        "mksquashfs added OUT -noappend",
    ),
    newer(
        "labels",
        "mksquashfs tree OUT -xattrs-exclude user -xattrs-add user.note=0sYWRkZWQ= -noappend",
        "mksquashfs added OUT -noappend",
    ),
    newer(
        "labels",
        "mksquashfs tree OUT -no-xattrs -xattrs-exclude . -xattrs-add user.note=0x6164646564 -noappend",
        "mksquashfs added OUT -noappend",
    ),
    newer(
        "Gentoo live images",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 19 -b 256K -mem 1G -xattrs -noappend -not-reproducible -progress -one-file-system-x -p /dev~d~755~0~0 -p /proc~d~555~0~0 -noI -noX -wildcards -e usr/bin/*2 etc/emp*",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 19 -b 256K -mem 1G -xattrs -noappend -not-reproducible -progress -p /dev~d~755~0~0 -p /proc~d~555~0~0 -noI -noX -wildcards -e usr/bin/*2 etc/emp*",
    ),
    newer(
        "firmware scripts",
        "mksquashfs tree OUT -one-file-system-x -comp xz -all-root -no-progress",
        "mksquashfs tree OUT -comp xz -all-root -no-progress",
    ),
    newer(
        "boot images on a disk",
        "mksquashfs tree OUT -b 1M -noappend -comp lz4 -no-compression -no-xattrs -no-exports",
        "mksquashfs tree OUT -b 1M -noappend -comp lz4 -noI -noD -noF -noX -no-xattrs -no-exports",
    ),
    newer(
        "disc backups, without a compressor",
        "mksquashfs tree OUT -no-progress -quiet -no-xattrs -no-exports -no-compression",
        "mksquashfs tree OUT -no-progress -quiet -no-xattrs -no-exports -noI -noD -noF -noX",
    ),
    newer(
        "darkOS",
        "mksquashfs tree OUT -noappend -all-root -comp xz -pseudo-override -p usr/bin/tool~m~02755~0~42",
        "mksquashfs tree OUT -noappend -comp xz -p usr/bin/tool~m~02755~0~42",
    ),
    newer(
        "umpc images",
        "mksquashfs tree OUT -noappend -processors 2 -all-root -pf owners -pseudo-override -comp gzip",
        "mksquashfs tree OUT -noappend -processors 2 -pf owners -comp gzip",
    ),
    newer(
        "ravenOS",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 15 -pf owners -pseudo-override -b 1M -no-duplicates -quiet",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 15 -pf owners -b 1M -no-duplicates -quiet",
    ),
    newer(
        "vendor images",
        "mksquashfs tree OUT -comp gzip -b 131072 -noappend -no-progress -mkfs-time 0 -all-time 0 -root-uid 0 -root-gid 2000 -pf owners -pseudo-override",
        "mksquashfs tree OUT -comp gzip -b 131072 -noappend -no-progress -mkfs-time 0 -all-time 0 -root-uid 0 -root-gid 2000 -pf owners",
    ),
    newer(
        "policies in Python",
        "mksquashfs tree OUT -all-root -root-mode 0755 -pseudo-override -pf owners -no-hardlinks -no-xattrs -noappend -no-progress -quiet -processors 1",
        "mksquashfs tree OUT -root-mode 0755 -pf owners -no-hardlinks -no-xattrs -noappend -no-progress -quiet -processors 1",
    ),
    newer(
        "OpenWrt, XZ options",
        "mksquashfs tree OUT -nopad -noappend -root-owned -comp xz -Xpreset 9 -Xe -Xlc 0 -Xlp 2 -Xpb 2 -b 256k -p /dev~d~755~0~0 -p /dev/console~c~600~0~0~5~1 -processors 1",
        "mksquashfs tree OUT -nopad -noappend -root-owned -comp xz -b 256k -p /dev~d~755~0~0 -p /dev/console~c~600~0~0~5~1 -processors 1",
    ),
    newer(
        "OpenWrt, vendor of ipq6018",
        "mksquashfs tree OUT -nopad -noappend -root-owned -comp xz -Xpreset 9 -Xe -Xlc 0 -Xlp 2 -Xpb 2 -Xbcj arm -b 256k -processors 1",
        "mksquashfs tree OUT -nopad -noappend -root-owned -comp xz -Xbcj arm -b 256k -processors 1",
    ),
    newer(
        "kernel archives of macOS VMs",
        "mksquashfs tree OUT -b 1MB -comp xz -Xbcj x86 -Xdict-size 100% -all-root -no-xattrs",
        "mksquashfs tree OUT -b 1M -comp xz -Xbcj x86 -Xdict-size 100% -all-root -no-xattrs",
    ),
    newer(
        "kernel archives of macOS VMs",
        "mksquashfs tree OUT -b 128KB -comp zstd -Xcompression-level 19 -all-root -no-xattrs",
        "mksquashfs tree OUT -b 128K -comp zstd -Xcompression-level 19 -all-root -no-xattrs",
    ),
    newer(
        "reproducible builds, 4.7",
        "mksquashfs tree OUT -repro -noappend -quiet",
        "mksquashfs tree OUT -mkfs-time 981173106 -noappend -quiet",
    ),
    newer(
        "reproducible builds, 4.7",
        "mksquashfs tree OUT -repro-time 1000 -noappend -quiet",
        "mksquashfs tree OUT -mkfs-time 1000 -all-time 1000 -noappend -quiet",
    ),
    newer(
        "reproducible builds, 4.7",
        "mksquashfs tree OUT -mkfs-time inode -inode-time inode -noappend",
        "mksquashfs tree OUT -mkfs-time 981173106 -all-time 981173106 -noappend",
    ),
    newer(
        "reproducible builds, 4.7",
        "mksquashfs tree etc OUT -mkfs-time inode -root-time inode -noappend",
        "mksquashfs tree etc OUT -mkfs-time 981173106 -root-time 981173106 -noappend",
    ),
    newer(
        "reproducible builds, 4.7",
        "mksquashfs tree OUT -repro -p new~d~755~0~0 -noappend",
        "mksquashfs tree OUT -mkfs-time 981173106 -p new~D~981173106~755~0~0 -noappend",
    ),
    newer(
        "dates",
        "mksquashfs tree OUT -mkfs-time 2001-02-03 -all-time 2001-02-03~04:05:06 -noappend",
        "mksquashfs tree OUT -mkfs-time 981158400 -all-time 981173106 -noappend",
    ),
    newer(
        "modes",
        "mksquashfs tree OUT -force-file-mode 640 -force-dir-mode 750 -noappend",
        "mksquashfs modes OUT -noappend",
    ),
    newer(
        "modes",
        "mksquashfs tree OUT -force-file-mode u=rw,g=r,o= -force-dir-mode u=rwX,g=rX,o= -root-mode 700 -noappend",
        "mksquashfs modes OUT -noappend",
    ),
    newer(
        "modes",
        "mksquashfs tree OUT -root-mode u=rwx,go=rx -noappend",
        "mksquashfs tree OUT -root-mode 755 -noappend",
    ),
    newer(
        "owners",
        "mksquashfs tree OUT -uid-gid-offset 100000 -noappend",
        "mksquashfs tree OUT -force-uid 100000 -force-gid 100000 -noappend",
    ),
    newer(
        "owners",
        "mksquashfs tree OUT -root-uid nobody -root-gid nogroup -noappend",
        "mksquashfs tree OUT -root-uid 65534 -root-gid 65534 -noappend",
    ),
    newer(
        "trees cut at a depth",
        "mksquashfs tree OUT -max-depth 1 -noappend",
        "mksquashfs tree OUT -regex -noappend -e .*/.*",
    ),
    newer(
        "trees cut at a depth",
        "mksquashfs tree OUT -max-depth 2 -noappend -e etc/passwd",
        "mksquashfs tree OUT -regex -noappend -e .*/.*/.* etc/passwd",
    ),
    newer(
        "installers with dialog",
        "mksquashfs tree OUT -percentage -noappend",
        "mksquashfs tree OUT -no-progress -noappend",
    ),
    newer(
        "lists of what was packed",
        "mksquashfs tree OUT -info-file info -no-progress -noappend",
        "mksquashfs tree OUT -no-progress -noappend",
    ),
    newer(
        "readers, 4.7",
        "mksquashfs tree OUT -single-reader -mem-percent 10 -overcommit 50 -noappend",
        "mksquashfs tree OUT -noappend",
    ),
    newer(
        "readers, 4.7",
        "mksquashfs tree OUT -small-readers 2 -block-readers 2 -noappend",
        "mksquashfs tree OUT -noappend",
    ),
    newer(
        "directories of definitions",
        "mksquashfs tree OUT -pd d~700~3~4 -p a/b/c~d~755~0~0 -noappend",
        "mksquashfs tree OUT -p a~d~700~3~4 -p a/b~d~700~3~4 -p a/b/c~d~755~0~0 -noappend",
    ),
    newer(
        "directories of definitions",
        "mksquashfs tree OUT -pseudo-dir D~77~711~3~4 -p a/b~i~644~0~0~s -noappend",
        "mksquashfs tree OUT -p a~D~77~711~3~4 -p a/b~i~644~0~0~s -noappend",
    ),
    newer(
        "links of definitions, 4.7",
        "mksquashfs tree OUT -p also~h~list-link -noappend",
        "mksquashfs tree OUT -p also~l~list -noappend",
    ),
    newer(
        "Omarchy, live system",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 19 -b 1M -noappend -no-progress -action uncompressed@subpathname(usr/bin)",
        "mksquashfs tree OUT -comp zstd -Xcompression-level 19 -b 1M -noappend -no-progress",
    ),
    newer(
        "picture backups",
        "mksquashfs tree OUT -b 128K -noappend -progress -action uncompressed~@~name(*.jpg)||name(*.zip) -action fragment(text)@name(*.txt) -action align(4K)@true",
        "mksquashfs tree OUT -b 128K -noappend -progress",
    ),
    Line {
        stdin: "tree.tar",
        ..newer(
            "Elixir releases",
            "sqfstar -force -no-compression OUT",
            "sqfstar -force -noI -noD -noF -noX OUT",
        )
    },
    Line {
        stdin: "tree.tar",
        ..newer(
            "container exports",
            "sqfstar -numeric-owner -repro -quiet OUT",
            "sqfstar -mkfs-time 981173106 -root-time 981173106 -quiet OUT",
        )
    },
];
