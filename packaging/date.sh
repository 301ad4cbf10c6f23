#!/bin/sh
# Prints the time that archives and packages carry, in seconds since 1970: SOURCE_DATE_EPOCH, or the time of the last commit. In an archive
# of the sources, which has no git, each file has that time.
set -eu

echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile)}"
