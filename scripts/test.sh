#!/bin/sh
# Runs the tests of every package in three tiers, counts them, and ends with the list of tests that needed a second try
# (internal/gotest). Arguments go to `go test`.
#
# The race detector needs a C compiler. If there is none, this installs one where that takes no questions (apt-get, as
# root or with a sudo that asks no password); otherwise the tests run without the race detector, and say so.
#
# Postgres, Redis and a Redis Cluster run beside the tests (internal/testserver): installed ones, or else Debian packages
# that are unpacked into a cache directory, or else Docker. If they cannot be had, no test runs, and the message says why.
# So does Temporal: an installed one, or else one that Go builds into the same cache. The first time that takes minutes, in
# which the tests that do not need it run; those that do wait, and fail and say why if it cannot be built.
# The tests of clients and pages need npm, which fetches packages into the same cache (a Node.js of version 20 among them, if
# the installed one is older), and Chromium. What is missing of them is installed where that takes no questions, as the
# compiler is. Otherwise Chromium is taken from Debian's packages as the servers are, and without npm those tests fail.
# The tests of skills fetch from git-http-backend, which belongs to git; without it no test runs.
#
#   HELIX_RACE=0   leave the race detector off, install no compiler
#   HELIX_SOAK=1   run the long tests at full length (make soak)
#   HELIX_SECOND_TRY=0
#                  let no failed test have a second try
#   HELIX_TEST_POSTGRES, HELIX_TEST_REDIS, HELIX_TEST_REDIS_CLUSTER, HELIX_TEST_TEMPORAL
#                  the addresses of running servers, to be used instead
#   HELIX_SCENARIOS=N
#                  which share of the scenarios and of what other tests repeat is played; without it, the commit's hash decides
#   HELIX_STRESS=N HELIX_STRESS_TEST=name HELIX_STRESS_PKG=package
#                  instead of all tests run this one N times while the machine is busy (make stress)
#   HELIX_BEGAN=N  when the run began, in seconds of Unix time, for the figures at its end
#   HELIX_TEST_SKIP_SERVERS=1
#                  fetch and install none of that, and skip the tests that need what is not there
set -eu
cd "$(dirname "$0")/.."

say() {
	printf 'test.sh: %s\n' "$*" >&2
}

# race_builds reports whether Go can build with the race detector, using the compiler $1 (or Go's own choice).
race_builds() (
	CGO_ENABLED=1
	export CGO_ENABLED
	if [ -n "${1:-}" ]; then
		CC=$1
		export CC
	fi
	go build -race runtime/cgo >/dev/null 2>&1
)

# find_compiler makes the race detector work with what is installed. Go looks for gcc; cc or clang will do.
find_compiler() {
	race_builds && return 0
	for compiler in cc clang; do
		if command -v "$compiler" >/dev/null 2>&1 && race_builds "$compiler"; then
			CC=$compiler
			export CC
			return 0
		fi
	done
	return 1
}

# as_root runs a command as root, without asking for a password.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

apt_install() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# can_install reports whether packages can be installed without a question.
can_install() {
	command -v apt-get >/dev/null 2>&1 && as_root true 2>/dev/null
}

install() {
	apt_install "$@" && return 0
	as_root apt-get update -qq >&2 && apt_install "$@"
}

install_compiler() {
	can_install || return 1
	say 'no C compiler for the race detector: installing gcc and libc6-dev'
	install gcc libc6-dev
}

# missing_for_pages lists the packages that the tests of clients and pages miss.
missing_for_pages() {
	if ! command -v npm >/dev/null 2>&1; then
		command -v node >/dev/null 2>&1 || printf 'nodejs '
		printf 'npm '
	fi
	for browser in chromium chromium-browser google-chrome; do
		command -v "$browser" >/dev/null 2>&1 && return 0
	done
	printf 'chromium'
}

install_for_pages() {
	packages=$(missing_for_pages)
	[ -n "$packages" ] || return 0
	if ! can_install; then
		say "not installed, and cannot be here: $packages"
		return 0
	fi
	say "for the tests of clients and pages: installing $packages"
	# shellcheck disable=SC2086 # a list
	install $packages || say "installing $packages failed"
}

# need_git_server makes sure that git can serve repositories, for the tests of skills.
need_git_server() {
	[ -x "$(git --exec-path)/git-http-backend" ] && return 0
	if [ -z "${HELIX_TEST_SKIP_SERVERS:-}" ] && can_install; then
		say 'for the tests of skills: installing git with git-http-backend'
		install git || say 'installing git failed'
	fi
	[ -x "$(git --exec-path)/git-http-backend" ] && return 0
	say 'git-http-backend is missing, which the tests of skills need: install the whole git (Debian: git, Alpine: git-daemon)'
	return 1
}

warn_no_race() {
	say '****************************************************************'
	say "* THE RACE DETECTOR IS OFF: $1"
	say '****************************************************************'
}

no_race=
if [ "${HELIX_RACE:-1}" = 0 ]; then
	no_race='HELIX_RACE=0'
elif ! find_compiler; then
	if ! install_compiler || ! find_compiler; then
		no_race='no working C compiler (install gcc and libc6-dev)'
	fi
fi

if [ -z "${HELIX_TEST_SKIP_SERVERS:-}" ]; then
	install_for_pages
fi
need_git_server

# -count=1: many tests run other processes, whose changes Go's test cache cannot see.
# -timeout is per package; a later one in the arguments wins. It has room for the time that building Temporal takes.
# -vet=off: golangci-lint vets everything.
# -p: with more packages at once than there are cores, what waits for servers, leases and other processes waits too long.
# -trimpath: so that a clone can use what another one has compiled.
# -ldflags=-w: linking without what only a debugger reads takes less time.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
set -- -count=1 -vet=off -trimpath -ldflags=-w -timeout=30m -p="$cores" "$@"
if [ -z "$no_race" ]; then
	CGO_ENABLED=1
	export CGO_ENABLED
	# The race detector looks at every access to memory, and at half of them in vain: SQLite is C in the shape of Go, which is
	# as if it were called through cgo, and encoding/json reads its input byte by byte, with unicode and strconv. They go unwatched; what
	# encoding/json reads and writes of our values goes through reflect, which is watched. -l: what it would inline of package sync must be
	# the watched one, or the detector does not see that goroutines wait for each other.
	unwatched='-race=false -d=checkptr=0'
	# At the end of every process the detector waits for a second in case a thread is about to report a race. The tests start
	# hundreds of processes, and check that no goroutine is left; a moment will do.
	GORACE="atexit_sleep_ms=20 ${GORACE:-}"
	export GORACE
	set -- -race -gcflags=all=-d=checkptr=0 "-gcflags=modernc.org/...=$unwatched" "-gcflags=encoding/json=$unwatched -l" \
		"-gcflags=unicode/...=$unwatched" "-gcflags=strconv=$unwatched" "$@"
else
	warn_no_race "$no_race"
fi

# All scenarios on all stores and runtimes take too long for every run, and so do all repetitions of some other tests
# (internal/testshare). Each commit plays another share; make soak plays all.
if [ -z "${HELIX_SCENARIOS:-}" ]; then
	commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
	HELIX_SCENARIOS=$((0x$(printf '%.7s' "$commit")))
fi
export HELIX_SCENARIOS
say "this run plays a share of the tests; HELIX_SCENARIOS=$HELIX_SCENARIOS repeats it"

tries=5
if [ "${HELIX_SECOND_TRY:-1}" = 0 ]; then
	tries=0
fi
CGO_ENABLED=0 go build -o bin/ ./internal/testserver/with ./internal/gotest
if [ -n "${HELIX_STRESS:-}" ]; then
	exec bin/with bin/gotest -stress "$HELIX_STRESS" -test "$HELIX_STRESS_TEST" "$HELIX_STRESS_PKG" -- "$@"
fi
budget=8m
quarantine=internal/gotest/quarantine.txt
if [ -n "${HELIX_SOAK:-}" ]; then
	budget=0
	quarantine=
fi
exec bin/with bin/gotest -most "$tries" -events bin/events.json -began "${HELIX_BEGAN:-0}" -budget "$budget" -quarantine "$quarantine" \
	-note "${no_race:+the race detector was OFF: $no_race}" ./... -- "$@"
