#!/bin/sh
# Builds a program twice, from copies of the last commit in two directories with names of different lengths, and compares the
# results byte by byte.
# Usage: packaging/reproducible.sh TARGET PROGRAM, from the root of the source tree: `make TARGET` is what makes PROGRAM, a path below
# the root.
set -eu

goal=$1 program=$2
work=$(mktemp -d "${TMPDIR:-/var/tmp}/reproducible.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Each copy builds into a directory of its own.
unset CARGO_TARGET_DIR
for dir in "$work/one" "$work/another-directory/two"; do
	mkdir -p "$dir"
	git archive HEAD | tar -x -C "$dir"
	make --silent -C "$dir" "$goal" REPRODUCIBLE=1 >"$work/log" 2>&1 || {
		cat "$work/log" >&2
		exit 1
	}
	cp "$dir/$program" "$work/$(basename "$dir")-program"
	sha256sum "$dir/$program"
	# The second build shall find nothing of the first, and two need twice the space.
	rm -rf "$dir"
done
cmp "$work/one-program" "$work/two-program"
if grep -aq "$work" "$work/one-program"; then
	echo 'the program has the name of the directory in it' >&2
	exit 1
fi
echo 'both are equal'
