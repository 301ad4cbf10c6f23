//! The texts that follow the options in the help of `mount`.

pub const EXAMPLES: &str = "\
Examples:
  forerun mount firmware.img /mnt
  forerun mount -o uid=1000,gid=1000 card.img /mnt      a writable volume
  forerun mount --partition 2 -o ro disk.img /mnt
  forerun mount --layer base.tar --layer app.tar /mnt   like a container
  forerun mount firmware.img /mnt -- make -C /mnt check";

const LONG_EXAMPLES: &str = "\
Examples:
  forerun mount firmware.img /mnt
  forerun mount -o uid=1000,gid=1000 card.img /mnt      a writable volume
  forerun mount -o offset=1M,ro disk.img /mnt
  forerun mount --partition 2 -o ro disk.img /mnt
  forerun mount --layer base.tar --layer app.tar /mnt   like a container
  forerun mount firmware.img /mnt -- make -C /mnt check";

pub const MOUNT_OPTIONS: &str = "\
Mount options (-o, and the fourth field of /etc/fstab):
  via=HOW                as --via: auto, fuse or kernel
  offset=N, size=N       offset and length of the image in the file
  partition=N            partition of the file that holds the image
  uid=N, gid=N           owner and group of all files; for formats without
                         owners (romfs), the default is the user who mounts
  unmapped=squash|keep   owners that do not exist in your user namespace: squash
                         shows you instead (default), keep shows them as the
                         kernel does, and an overlay cannot copy such files up
  umask=NNN              permission bits to remove
  allow_other            let other users in, as far as permissions allow
  default_permissions    check permissions for the mounting user too
  auto_unmount           unmount when the serving processes are dead
  restarts=N             replace a serving process that dies, at most N times a
                         minute [default: 2]; 0: never
  objects=DIR            object store of a composefs image
  basedir=DIR            directory of files that a composefs image names by
                         path; repeat for each
  verity=MODE            check objects before use: off, on or require
  upperdir=DIR, workdir=DIR
                         with --via kernel: writable layer over a composefs
                         image, as of overlayfs
  digest=HEX             refuse a composefs image with another fs-verity digest
  device=PATH            device with data of the image; repeat for each
  readahead=N            bytes to read ahead of sequential readers; 0: none
  cache=N, threads=N     memory for cached blocks; number of threads
  nolock                 read even if another process writes; the data may be
                         inconsistent
  nolargeblocks          read in requests of 1 KiB, as old programs do, for
                         comparison (the default is largeblocks)
  fsname=S, subtype=S    names that df and mount show
  context=L, fscontext=L, defcontext=L, rootcontext=L
                         labels of SELinux; no effect without it
  remount                change ro, suid, dev and noexec of an existing mount
  salvage                show what is left of a damaged image, read-only
  suid, dev              allow set-user-id bits, device nodes (root only)
  noexec                 do not run programs
For exFAT volumes, which are mounted read-write:
  ro                     read-only
  fmask=NNN, dmask=NNN   permission bits to remove from files, from directories
  tz=ZONE, sys_tz        time zone of times that have none: ZONE such as
                         Europe/Berlin, or the zone of this system
  time_offset=N          the same: N minutes east of UTC
  dirsync, sync          flush after each change of names; with sync, after each
                         write too
  errors=WHAT            after damage: continue, or refuse further changes
                         (remount-ro)
  break_lock             write even if other processes read; they may read
                         inconsistent data
  discard                discard freed space; fstrim(8) works without it
  keep_last_dots         accept names that end with dots
Sizes take K, M, G. Images of other formats are mounted read-only. All mounts
are nosuid and nodev by default.";

const FSTAB: &str = "\
In /etc/fstab, if /sbin has the link mount.fuse.forerun to this program:
  /srv/a.img  /mnt/a  fuse.forerun  ro,nofail,allow_other  0 0";

pub fn long_help() -> String {
    [LONG_EXAMPLES, MOUNT_OPTIONS, FSTAB].join("\n\n")
}
