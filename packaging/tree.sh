#!/bin/sh
# Makes the trees of the packages below DIR, forerun and forerun-compat: what lies where, for every kind of package.
# Usage: packaging/tree.sh PROGRAM DIR, from the root of the source tree. PROGRAM is the stripped forerun; GENERATOR is one that runs here.
set -eu

program=$1 dir=$2

installed() {
	make --silent install FORERUN="$program" GENERATOR="$GENERATOR" ARCH="$ARCH" DESTDIR="$1" PREFIX=/usr HELPERDIR=/usr/sbin \
		"SBOM=$dir/sbom" "COMPAT=$2" >"$dir/log"
}

mkdir -p "$dir"
make --silent sbom FORERUN="$program" GENERATOR="$GENERATOR" ARCH="$ARCH" SBOM="$dir/sbom"
root=$dir/forerun
installed "$root" ''
find "$root/usr/share/man" -type f -exec gzip -9n {} +
ln -sf ../bin/forerun "$root/usr/sbin/mount.fuse.forerun"
ln -sf ../bin/forerun "$root/usr/sbin/umount.fuse.forerun"
ln -s mount.fuse.forerun.8.gz "$root/usr/share/man/man8/umount.fuse.forerun.8.gz"

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
rm -r "$dir/all" "$dir/log" "$dir/sbom"
