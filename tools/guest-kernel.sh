#!/bin/sh
# guest-kernel.sh DIR: unpacks the newest kernel of the distribution, from its Debian package, into DIR.
#
# Nothing is installed, and no root is needed.
set -eu
mkdir -p "$(dirname "$1")"
dir=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
work=$(mktemp -d "$(dirname "$dir")/guest-kernel-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

download() {
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
    # The user of apt itself cannot write to the directory.
    [ "$package" ] && apt-get -q -o DPkg::Lock::Timeout=300 -o APT::Sandbox::User=root download "$package"
}

# The package lists may be old, or not there yet.
download || { [ "$(id -u)" = 0 ] && apt-get -q -o DPkg::Lock::Timeout=300 update && download; }
echo "unpacking $package into $dir"
dpkg-deb -x ./*.deb unpacked
PATH=$PATH:/usr/sbin:/sbin depmod -b "$work/unpacked" "${package#linux-image-}"
mv unpacked "$dir"
