#!/bin/sh
# Makes the trees of the packages below DIR, forerun and forerun-compat: what lies where, for every kind of package.
# Usage: packaging/tree.sh PROGRAM DIR, from the root of the source tree. PROGRAM is the stripped forerun.
set -eu

program=$1 dir=$2

installed() {
	make --silent install FORERUN="$program" DESTDIR="$1" PREFIX=/usr HELPERDIR=/usr/sbin "COMPAT=$2" >"$dir/log"
}

mkdir -p "$dir"
root=$dir/forerun
installed "$root" ''
find "$root/usr/share/man" -type f -exec gzip -9n {} +
install -D -m 644 packaging/forerun@.service "$root/usr/lib/systemd/system/forerun@.service"
# The static program has no snapshotter.
if "$program" help snapshotter >/dev/null 2>&1; then
	unit=$root/usr/lib/systemd/system/forerun-snapshotter.service
	sed 's,/usr/local/bin/,/usr/bin/,' packaging/forerun-snapshotter.service >"$unit"
	chmod 644 "$unit"
fi
install -D -m 644 packaging/forerun.tmpfiles "$root/usr/lib/tmpfiles.d/forerun.conf"
install -D -m 644 packaging/forerun.apparmor "$root/usr/share/doc/forerun/examples/apparmor"
install -D -m 644 packaging/fstab.example "$root/usr/share/doc/forerun/examples/fstab"
make --silent sbom FORERUN="$program" SBOM="$root/usr/share/doc/forerun"
ln -sf ../bin/forerun "$root/usr/sbin/mount.fuse.forerun"
ln -sf ../bin/forerun "$root/usr/sbin/umount.fuse.forerun"

root=$dir/forerun-compat
installed "$dir/all" 1
mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/share/man/man1" "$root/usr/share/man/man8"
for link in "$dir/all/usr/bin"/* "$dir/all/usr/sbin"/*; do
	name=$(basename "$link")
	case $link in
	*/mount.fuse.forerun | */umount.fuse.forerun) ;;
	*/sbin/*)
		ln -s ../bin/forerun "$root/usr/sbin/$name"
		ln -s ../man1/forerun-compat.1.gz "$root/usr/share/man/man8/$name.8.gz"
		;;
	*)
		if [ -L "$link" ]; then
			ln -s forerun "$root/usr/bin/$name"
			ln -s forerun-compat.1.gz "$root/usr/share/man/man1/$name.1.gz"
		fi
		;;
	esac
done
rm -r "$dir/all" "$dir/log"
