#!/bin/sh
# Runs make with the given arguments as an ordinary user, in a copy of this tree:
#
#	as-user.sh unit RACE= SKIPS=test/skips-user.txt
#
# The user, its home and its caches are made for the run and removed after it. A
# process or a file that the run leaves behind fails it. It needs root.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "test/as-user.sh: needs root to make a user" >&2; exit 1; }

user=doorward-$$
base=$(mktemp -d /var/tmp/doorward-user-XXXXXX)
home=$base/home

# end stops what the user still runs, removes the user and all it has.
end() {
	processes | xargs -r kill -KILL 2>/dev/null || true
	userdel "$user" 2>/dev/null || true
	rm -rf "$base"
}

# processes prints the number of each process of the user. One that has ended and
# waits for its parent is none.
processes() {
	find /proc -maxdepth 1 -name '[0-9]*' -user "$user" -cnewer "$base" -printf '%f\n' 2>/dev/null | while read -r pid; do
		! grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null || echo "$pid"
	done
}

# caches gives the user copies of the downloaded Go modules and of what is
# compiled, so that nothing is downloaded, and the libraries are not compiled again.
# A cache of builds that has grown beyond half of the free space is left out.
caches() {
	mkdir -p "$home/go/pkg" "$home/.cache"
	[ ! -d "$(go env GOMODCACHE)" ] || cp -a "$(go env GOMODCACHE)" "$home/go/pkg/mod"
	built=$(go env GOCACHE)
	[ -d "$built" ] || return 0
	free=$(df -Pk "$home" | awk 'NR == 2 {print int($4 / 2)}')
	[ "$(du -sk "$built" | cut -f 1)" -gt "$free" ] || cp -a "$built" "$home/.cache/go-build"
}

# path is PATH without the directories that the user may not enter.
path() {
	echo "$PATH" | tr : '\n' | while read -r dir; do
		! runuser -u "$user" -- test -x "$dir" || printf '%s:' "$dir"
	done
}

# left prints the processes of the user, and the files outside its home that it has
# written since the start: an earlier user may have had its number. A file of another
# user that is removed meanwhile makes find fail, which means nothing here.
left() {
	for pid in $(processes); do
		echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
	done
	find /tmp /var/tmp /dev/shm -path "$base" -prune -o -user "$user" -cnewer "$base" -print 2>/dev/null || true
}

trap end EXIT
trap 'exit 1' INT TERM HUP
useradd --user-group --no-create-home --home-dir "$home" --shell /bin/sh "$user"
mkdir -m 755 "$home"
chmod 755 "$base"
mkdir "$home/doorward"
tar -c --exclude=./.git --exclude=./bin --exclude=./dist --exclude=node_modules . | tar -x -C "$home/doorward"
caches
chown -R "$user:" "$home"
echo "as $user:" make "$@"
status=0
runuser -u "$user" -- env -i HOME="$home" USER="$user" LOGNAME="$user" PATH="$(path)" CI="${CI:-}" GOFLAGS="${GOFLAGS:-}" \
	GOPROXY="$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" GOTOOLCHAIN="$(go env GOTOOLCHAIN)" \
	make -C "$home/doorward" "$@" || status=$?
for _ in 1 2 3 4 5; do # what was told to end has a moment for it
	behind=$(left)
	[ -n "$behind" ] || break
	sleep 1
done
if [ -n "$behind" ]; then
	echo "left behind by the run as $user:"
	echo "$behind"
	status=1
fi
exit $status
