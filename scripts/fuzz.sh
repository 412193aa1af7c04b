#!/bin/sh
# Fuzzes the decoders of request bodies, one target after the other. Arguments are the packages to look for targets in.
#
# An input that fails is written to the package's testdata/fuzz, where every later test run tries it again; add it to the
# commit that repairs what it found.
#
#   HELIX_FUZZTIME=10m   how long each target runs
set -eu
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- ./server/...
failed=
for package in $(go list "$@"); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz'); do
		echo "fuzz.sh: $package $target for ${HELIX_FUZZTIME:-10m}"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${HELIX_FUZZTIME:-10m}" -fuzzminimizetime 1s "$package" || failed="$failed $target"
	done
done
if [ -n "$failed" ]; then
	echo "fuzz.sh: FAILED:$failed" >&2
	exit 1
fi
