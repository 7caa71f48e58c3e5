#!/bin/sh
# Makes the files of a small Debian system with systemd, for the tests of the packages:
# a tarball below ~/.cache/doorward-test, once. Nothing of this machine is in it.
set -eu
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "test/machine.sh: this needs Debian and root; the tests of the packages on a machine are skipped" >&2
	exit
fi
command -v debootstrap >/dev/null && command -v systemd-nspawn >/dev/null || {
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap systemd-container >/dev/null
}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/doorward-test/machine
if [ -f "$cache/stamp" ] && cmp -s machine.sh "$cache/stamp"; then
	exit
fi
mkdir -p "$cache"
made=$(mktemp -d /var/tmp/doorward-machine.XXXXXX)
trap 'rm -rf "$made"' EXIT
chmod 755 "$made" # it becomes the root directory
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,sudo,curl,openssl,ca-certificates,procps \
	"$(. /etc/os-release && echo "$VERSION_CODENAME")" "$made" >/dev/null
rm -rf "$made"/var/cache/apt/archives/*.deb "$made"/var/lib/apt/lists/*
tar -C "$made" -cf "$cache/root.tar.new" .
mv "$cache/root.tar.new" "$cache/root.tar"
cp machine.sh "$cache/stamp"
