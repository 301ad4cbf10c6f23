#!/bin/sh
# Builds the last commit in two places and compares what was made, byte for byte: directories, homes of cargo, umasks, time zones and languages differ.
# Usage: packaging/reproducible.sh TARGET..., targets of the Makefile: release, static, lite, runtime, deb, rpm, tarball.
set -eu

source=$(pwd)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
machine=$(uname -m)
musl=target/$machine-unknown-linux-musl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CARGO_TARGET_DIR RUSTFLAGS CFLAGS

# Names what a target makes.
made() {
	case $1 in
	release) echo 'target/dist/stripped/forerun target/dist/stripped/.debug/forerun.debug' ;;
	static | lite) echo "$musl/$1/forerun" ;;
	runtime) echo "$musl/runtime/appimage/forerun-runtime" ;;
	deb | rpm) echo "target/packages/*.$1" ;;
	tarball) echo 'target/packages/*.tar.gz' ;;
	*)
		echo "$1 is none of release, static, lite, runtime, deb, rpm, tarball" >&2
		return 2
		;;
	esac
}

# Arguments: where to build, where to put what was made, targets. Compilers see a home of cargo of this build alone; what was downloaded is the same.
build() {
	place=$1 kept=$2
	shift 2
	mkdir -p "$kept" "$place.cargo/registry"
	git clone --quiet --no-hardlinks "$source" "$place"
	for part in config.toml registry/index registry/cache; do
		[ ! -e "$cargo_home/$part" ] || cp -r "$cargo_home/$part" "$place.cargo/$part"
	done
	cd "$place"
	for target in "$@"; do
		CARGO_HOME=$place.cargo nice make --silent "$target"
		for file in $(made "$target"); do
			cp "$file" "$kept/$target-$(basename "$file")"
		done
	done
	cd "$source"
	# The second build needs the room.
	rm -rf "$place" "$place.cargo"
}

[ $# -gt 0 ] || {
	echo 'usage: packaging/reproducible.sh TARGET...' >&2
	exit 2
}
for target in "$@"; do
	made "$target" >/dev/null
done
(umask 022 && TZ=UTC LC_ALL=C build "$work/first" "$work/one" "$@")
(umask 027 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 build "$work/another/place/for/the/second" "$work/two" "$@")

differ=''
for file in "$work/one"/*; do
	name=$(basename "$file")
	if cmp "$file" "$work/two/$name"; then
		echo "$(sha256sum "$file" | cut -d ' ' -f 1)  $name"
	else
		differ="$differ $name"
	fi
done
[ -z "$differ" ] || {
	echo "not the same:$differ" >&2
	exit 1
}
