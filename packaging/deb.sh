#!/bin/sh
# Makes forerun_VERSION_ARCH.deb and forerun-compat_VERSION_all.deb of what packaging/tree.sh lays out.
# Usage: packaging/deb.sh PROGRAM DIR, from the root of the source tree. PROGRAM is the stripped forerun; if it is for another machine, ARCH is
# that one's name, and GENERATOR a forerun that runs here.
set -eu

program=$1
out=$2
export ARCH="${ARCH:-$(uname -m)}" GENERATOR="${GENERATOR:-$program}"
version=$("$GENERATOR" --version | cut -d ' ' -f 2)-1
case $ARCH in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) arch=${DEB_HOST_ARCH:-$(dpkg --print-architecture)} ;;
esac
# Debian's tools put this time into the archives, so that they do not depend on when they were made.
SOURCE_DATE_EPOCH=$(packaging/date.sh)
export SOURCE_DATE_EPOCH

maintainer='The authors of forerun <forerun@example.invalid>'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

packaging/tree.sh "$program" "$work"

# Arguments: the package, its architecture, then lines of the control file.
build() {
	package=$1 of=$2
	shift 2
	root=$work/$package
	doc=$root/usr/share/doc/$package
	mkdir -p "$root/DEBIAN" "$doc"
	{
		echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
		echo 'Upstream-Name: forerun'
		echo
		echo 'Files: *'
		echo 'Copyright: the authors of forerun'
		echo 'Comment: The licences of the libraries in it are in /usr/share/doc/forerun/forerun.licenses.txt.gz.'
		echo 'License: Apache-2.0 or MIT'
		echo ' The Apache licence is in /usr/share/common-licenses/Apache-2.0. The MIT licence:'
		sed 's/^$/./; s/^/ /' LICENSE-MIT
	} >"$doc/copyright"
	gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
	{
		echo "$package ($version) unstable; urgency=medium"
		echo
		echo '  * The changes are in changelog.gz.'
		echo
		echo " -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")"
	} | gzip -9nc >"$doc/changelog.Debian.gz"
	install -d "$root/usr/share/lintian/overrides"
	{
		echo '# It is not uploaded to Debian.'
		echo "$package: initial-upload-closes-no-bugs"
		[ -z "$overrides" ] || printf '%s\n' "$overrides"
	} >"$root/usr/share/lintian/overrides/$package"
	# A kilobyte for each started one and for each directory, whatever the file system here says.
	size=$(find "$root/usr" -printf '%y %s\n' | awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }')
	{
		echo "Package: $package"
		echo "Version: $version"
		echo "Architecture: $of"
		echo "Maintainer: $maintainer"
		echo 'Section: utils'
		echo 'Priority: optional'
		echo "Installed-Size: $size"
		printf '%s\n' "$@"
	} >"$root/DEBIAN/control"
	(cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2 >DEBIAN/md5sums)
	chmod -R u=rwX,go=rX "$root"
	[ ! -e "$root/DEBIAN/postrm" ] || chmod 755 "$root/DEBIAN/postrm"
	dpkg-deb --root-owner-group --build "$root" "$out/${package}_${version}_$of.deb"
}

root=$work/forerun
rm "$root/usr/share/doc/forerun/LICENSE-APACHE" "$root/usr/share/doc/forerun/LICENSE-MIT"
gzip -9n "$root"/usr/share/doc/forerun/*.licenses.txt
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
# The cache of forerun@.service; all of it can be fetched again.
[ "$1" != purge ] || rm -rf /var/cache/forerun
END
# A program with libraries of the system needs them as dpkg-dev names them.
needs=''
static=$(ls -d "$root"/usr/lib/forerun 2>/dev/null || true)
if readelf -d "$program" | grep -q NEEDED; then
	mkdir "$work/debian"
	printf 'Source: forerun\n\nPackage: forerun\nArchitecture: any\n' >"$work/debian/control"
	needs=$(cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/forerun" | sed -n 's/^shlibs:Depends=/Depends: /p')
else
	static=$program
fi
overrides='# zlib-rs, which is in Rust.
forerun: embedded-library zlib *'
[ -z "$static" ] || overrides="$overrides
# A static program whose address can be random, which looks like a library.
forerun: shared-library-lacks-prerequisites"
build forerun "$arch" ${needs:+"$needs"} 'Recommends: fuse3' \
	'Description: open filesystem images without root and without kernel drivers' \
	' Lists, reads, extracts, mounts, makes, checks and converts images of romfs,' \
	' SquashFS, EROFS, composefs, exFAT, cramfs, tar, and containers, in files or at' \
	' servers.'

overrides=''
root=$work/forerun-compat
# The packages of Debian that have programs of these names, and the versions whose command lines forerun takes (docs/compat.md). It takes their
# place, so that packages which need them, such as snapd, stay.
others='squashfs-tools=1:4.6.1 squashfuse=0.5.2 erofs-utils=1.9 erofsfuse=1.9 composefs=1.0.8 exfatprogs=1.2.0 exfat-utils=1.3.0 exfat-fuse=1.3.0'
conflicts=$(printf '%s\n' $others | sed 's/=.*//' | paste -sd , | sed 's/,/, /g')
provides=$(printf '%s\n' $others | sed 's/\(.*\)=\(.*\)/\1 (= \2)/' | paste -sd , | sed 's/,/, /g')
build forerun-compat all "Depends: forerun (= $version)" "Conflicts: $conflicts" "Replaces: $conflicts" "Provides: $provides" \
	'Description: forerun under the names of other programs' \
	' Links with the names of other programs, squashfuse and unsquashfs among them.' \
	' Under such a name forerun takes the options and prints the output of that one.'
