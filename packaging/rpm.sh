#!/bin/sh
# Makes forerun-VERSION-1.ARCH.rpm and forerun-compat-VERSION-1.noarch.rpm of the files that the packages for Debian have, with rpmbuild.
# Usage: packaging/rpm.sh PROGRAM DIR, from the root of the source tree. PROGRAM, ARCH and GENERATOR are those of packaging/deb.sh.
set -eu

program=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
command -v rpmbuild >/dev/null || {
	echo 'make rpm needs rpmbuild: apt install rpm, or dnf install rpm-build' >&2
	exit 1
}
export ARCH="${ARCH:-$(uname -m)}" GENERATOR="${GENERATOR:-$program}"
version=$("$GENERATOR" --version | cut -d ' ' -f 2)
# rpmbuild puts these into the packages, so that they do not depend on when and where they were made.
SOURCE_DATE_EPOCH=$(packaging/date.sh)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packaging/tree.sh "$program" "$work/tree"
for package in forerun forerun-compat; do
	doc=$work/tree/$package/usr/share/licenses/$package
	mkdir -p "$doc"
	cp LICENSE-MIT LICENSE-APACHE "$doc"
done
rm "$work/tree/forerun/usr/share/doc/forerun/LICENSE-APACHE" "$work/tree/forerun/usr/share/doc/forerun/LICENSE-MIT"
mv "$work/tree/forerun/usr/share/doc/forerun"/*.licenses.txt "$work/tree/forerun/usr/share/licenses/forerun"
chmod -R u=rwX,go=rX "$work/tree"

# Lists the files of a package, links among them, as a spec has them. No directory is the package's own, but those of its name.
files() {
	(cd "$work/tree/$1" && find . ! -type d -printf '/%P\n' && find . -type d -name "$1" -printf '%%dir /%P\n') | LC_ALL=C sort
}

# Arguments: the package, its architecture, lines of the preamble; the description is standard input.
build() {
	package=$1 of=$2 preamble=$3
	spec=$work/$package.spec
	{
		echo "Name: $package"
		echo "Version: $version"
		echo 'Release: 1'
		echo 'License: MIT OR Apache-2.0'
		printf '%s\n' "$preamble"
		echo '%description'
		cat
		echo '%install'
		echo "mkdir -p %{buildroot}"
		echo "cp -a $work/tree/$package/. %{buildroot}/"
		echo '%files'
		files "$package"
	} >"$spec"
	# The program is stripped already, and has its debug information elsewhere; man pages are compressed.
	rpmbuild --quiet -bb --target "$of" \
		--define "_topdir $work/rpmbuild" --define "_rpmdir $out" --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' \
		--define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
		--define 'debug_package %{nil}' --define '__os_install_post %{nil}' --define '_build_id_links none' \
		--define '_binary_payload w9.gzdio' "$spec"
	echo "$out/$package-$version-1.$of.rpm"
}

build forerun "$ARCH" 'Summary: Open filesystem images without root and without kernel drivers
Recommends: fuse3' <<'END'
Lists, reads, extracts, mounts, makes, checks and converts images of romfs, SquashFS, EROFS, composefs, exFAT, cramfs, tar, and
containers, in files or at servers.
END
build forerun-compat noarch "Summary: forerun under the names of other programs
Requires: forerun = $version-1
Conflicts: squashfs-tools, squashfuse, erofs-utils, erofs-fuse, composefs, exfatprogs, exfat-utils, fuse-exfat
Provides: squashfs-tools = 4.6.1, squashfuse = 0.5.2, erofs-utils = 1.9, erofs-fuse = 1.9, composefs = 1.0.8
Provides: exfatprogs = 1.2.0, exfat-utils = 1.3.0, fuse-exfat = 1.3.0
AutoReqProv: no" <<'END'
Links with the names of other programs, squashfuse and unsquashfs among them. Under such a name forerun takes the options and
prints the output of that one.
END
