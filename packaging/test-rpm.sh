#!/bin/sh
# Installs the rpm packages into an empty tree, compares their files with those of the packages for Debian, removes them, and looks
# for files that are left.
# Usage: packaging/test-rpm.sh DIR, as root. DIR has the packages of `make rpm` and `make deb`. Needs rpm and dpkg-deb.
set -eu

packages=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir "$root"

# The database is where no file of the tree is.
in_root() {
	rpm --root "$root" --dbpath /rpmdb "$@"
}

# Lists files but the documents that each kind of package has in a place of its own.
files() {
	(cd "$1" && find . ! -type d ! -path './rpmdb/*' ! -path '*/doc/*' ! -path '*/licenses/*' ! -path '*/lintian/*') |
		sed 's,zsh/vendor-completions,zsh/site-functions,' | LC_ALL=C sort
}

in_root --initdb
# The libraries of a system are not in the tree.
in_root --nodeps -i "$packages"/forerun-[0-9]*.rpm "$packages"/forerun-compat-[0-9]*.rpm
mkdir "$work/debian"
for package in "$packages"/forerun_*.deb "$packages"/forerun-compat_*.deb; do
	dpkg-deb --extract "$package" "$work/debian"
done
files "$root" >"$work/rpm.files"
files "$work/debian" >"$work/deb.files"
diff "$work/deb.files" "$work/rpm.files"
"$root/usr/bin/forerun" --version
in_root -V --nodeps forerun forerun-compat
in_root --nodeps -e forerun-compat forerun
left=$(files "$root")
[ -z "$left" ] || {
	echo "left: $left"
	exit 1
}
echo "$(wc -l <"$work/rpm.files") files, those of the packages for Debian; none is left"
