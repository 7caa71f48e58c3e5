#!/bin/sh
# Runs a command and fails when it leaves a process or a temporary file of the
# tests behind:
#
#	leaves-nothing.sh make test
#
# Others may work on the machine meanwhile, so only the names that the tests use
# count.
set -eu

# processes prints each running program of the tests: its number and its file.
processes() {
	find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -printf '%h %l\n' 2>/dev/null |
		grep -E '/(doorward|notes-server|node|postgres|chromium|chrome|[a-z_]+\.test)( \(deleted\))?$' || true
}

files() {
	find /tmp /var/tmp /dev/shm -maxdepth 1 \( -name 'dw*' -o -name 'doorward*' -o -name 'Test*' -o -name 'go-test-script*' -o -name 'powerloss*' \
		-o -name 'chromedp-*' -o -name '.org.chromium.*' -o -name 'PostgreSQL.*' \) -print 2>/dev/null || true
}

list=$(mktemp)
trap 'rm -f "$list"' EXIT
{ processes; files; } >"$list"
status=0
"$@" || status=$?
sleep 1 # what was told to end has a moment for it
left=$({ processes; files; } | grep -vxFf "$list" || true)
if [ -n "$left" ]; then
	echo "left behind by $*:"
	echo "$left"
	status=1
fi
exit $status
