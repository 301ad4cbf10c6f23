//! The texts that follow the options in the help of `mount`.

pub const EXAMPLES: &str = "\
Examples:
  forerun mount firmware.img /mnt
  forerun mount -o uid=1000,gid=1000 card.img /mnt      an exFAT volume, to write to
  forerun mount --partition 2 -o ro disk.img /mnt
  forerun mount --layer base.tar --layer app.tar /mnt   as a container has it
  forerun mount firmware.img /mnt -- make -C /mnt check
The mount options (-o) are in forerun mount --help-all.";

const LONG_EXAMPLES: &str = "\
Examples:
  forerun mount firmware.img /mnt
  forerun mount -o uid=1000,gid=1000 card.img /mnt      an exFAT volume, to write to
  forerun mount -o offset=1M,ro disk.img /mnt
  forerun mount --partition 2 -o ro disk.img /mnt
  forerun mount --layer base.tar --layer app.tar /mnt       as a container has it
  forerun mount firmware.img /mnt -- make -C /mnt check     unmount when make ends";

/// The mount options, for the long help and the man pages.
pub const MOUNT_OPTIONS: &str = "\
Mount options (-o, and the fourth field of /etc/fstab):
  via=HOW                as --via: auto, fuse or kernel
  offset=N, size=N       the image is that part of the file
  partition=N            as --partition: the image is that partition of the file
  uid=N, gid=N           owner of everything, instead of the image's; in formats without
                         owners (romfs) everything belongs to who mounts
  unmapped=squash|keep   owners that your user namespace lacks: shown as you, or left to the
                         kernel, which lets no overlay copy such files up (squash)
  umask=NNN              permissions to take away
  allow_other            other users may look too, as far as permissions allow
  default_permissions    the kernel enforces the image's permissions for you too
  auto_unmount           unmount when the serving processes die, however they die
  restarts=N             replace a serving process that dies, up to N times a minute (2);
                         0: none is, and the mount is dead then
  objects=DIR            object store of a composefs image
  verity=MODE            check objects before they are used: off, on or require
  digest=HEX             refuse a composefs image with another fs-verity digest
  device=PATH            data that the image keeps outside itself; once for each device
  readahead=N            keep this far ahead of a sequential reader; 0 turns it off
  cache=N, threads=N     memory for cached blocks; threads that work
  nolock                 read a volume that others write: what is read may be inconsistent
  nolargeblocks          the legacy 1 KiB requests, to compare (largeblocks is the default)
  fsname=S, subtype=S    what df and mount show
  remount                change ro, suid, dev and noexec of the mount that is there
  rescue                 show what a damaged volume or image still has; read-only
  suid, dev, noexec      honour set-user-id bits, device nodes (root only); run no programs
Volumes that change (exFAT) are mounted read-write:
  ro                     do not write
  fmask=NNN, dmask=NNN   as umask, for files and for directories
  time_offset=N, sys_tz  zone of times without one: minutes east of UTC, or this system's
  dirsync, sync          each operation, each write too, is on the device when it returns
  errors=WHAT            after damage: continue, or take no more changes (remount-ro)
  break_lock             write although other processes read; they may read inconsistent data
  discard                tell the device what is free; fstrim(8) works without
  keep_last_dots         names may end with dots
Sizes take K, M, G. Other mounts are read-only; all are nosuid and nodev.";

const FSTAB: &str = "\
In /etc/fstab, with the link mount.fuse.forerun to this program in /sbin:
  /srv/a.img  /mnt/a  fuse.forerun  ro,nofail,allow_other  0 0";

/// Returns what follows the options in the long help.
pub fn long_help() -> String {
    [LONG_EXAMPLES, MOUNT_OPTIONS, FSTAB].join("\n\n")
}
