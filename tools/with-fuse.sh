#!/bin/sh
# with-fuse.sh COMMAND...: runs a command with a /dev/fuse that every user may open.
#
# udev opens the device to all users; a machine without udev leaves it to root, and tests mount without root. As root, the
# command then has a device node of its own, in a mount namespace of its own: the machine stays as it is. Where that
# cannot be made, the command runs as it is, and the tests say what they lack.
set -eu
if [ "$(id -u)" != 0 ] || ! [ -c /dev/fuse ] || [ "$(find /dev/fuse -perm -666)" ]; then
    exec "$@"
fi
# The machine does not see the mounts of the command, but its own unmounts keep no image of a test busy.
exec unshare --mount --propagation slave sh -c '
    dir=$(mktemp -d) || exit
    # Temporary directories are often on file systems whose device nodes cannot be opened.
    mount -t tmpfs -o nosuid,noexec forerun-tests "$dir" &&
        mknod -m 666 "$dir/fuse" c $(stat -c "0x%t 0x%T" /dev/fuse) &&
        mount --bind "$dir/fuse" /dev/fuse || echo "no /dev/fuse for every user" >&2
    umount --lazy "$dir"
    rmdir "$dir"
    exec "$@"' sh "$@"
