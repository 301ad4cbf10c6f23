#!/bin/sh
# Installs the packages into a fresh Debian, uses the program, removes them, and compares the files before and after.
# Usage: packaging/test-deb.sh PROGRAM DEBIAN.tar DIR, as root. DIR has the packages; DEBIAN.tar is what
# `mmdebstrap --variant=minbase bookworm DEBIAN.tar` makes. PROGRAM is forerun: the test runs in the archive.
set -eu

program=$1 debian=$2 packages=$3

# shellcheck disable=SC2016
"$program" run --overlay tmpfs --bind "$packages:/packages:ro" --bind /dev/fuse "$debian" -- sh -euc '
	export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
	files() {
		# dpkg keeps lists of its own, and what is in /run goes when a system stops.
		find / -xdev ! -path "/var/lib/dpkg/*" ! -path "/var/log/*" ! -path "/var/cache/debconf/*" ! -path "/run/*" ! -path "/packages*" | sort
	}
	files >/tmp/before
	dpkg -i /packages/forerun_*.deb
	dpkg -i /packages/forerun-compat_*.deb
	mkdir /tmp/tree /tmp/mnt
	echo hello >/tmp/tree/file
	forerun pack -q /tmp/tree /tmp/a.sqsh
	forerun mount /tmp/a.sqsh /tmp/mnt
	cat /tmp/mnt/file
	forerun umount /tmp/mnt
	mount -t fuse.forerun /tmp/a.sqsh /tmp/mnt
	cat /tmp/mnt/file
	forerun umount /tmp/mnt
	unsquashfs -l /tmp/a.sqsh
	dpkg --purge forerun-compat forerun
	files >/tmp/after
	if ! cmp /tmp/before /tmp/after; then
		comm -3 /tmp/before /tmp/after
		exit 1
	fi
	echo "no file is left"
'
