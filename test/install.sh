#!/bin/sh
# Installs what the tests need beside Go, each part once:
#
#	install.sh clients    the pinned MCP clients, servers and conformance suites, under test/node_modules
#	install.sh postgres   PostgreSQL 15 or later: Debian's package, as root
#	install.sh chromium   Debian's Chromium, as root
#	install.sh bus        Debian's message bus, as root
#	install.sh servers    the servers of servers/pasted.json, in a home below ~/.cache/doorward-test
#
# No install script of any npm package runs; Node itself comes as a package too.
set -eu
cd "$(dirname "$0")"

clients() {
	stamp=node_modules/.doorward-lock
	if [ -f "$stamp" ] && cmp -s package-lock.json "$stamp"; then
		return
	fi
	command -v npm >/dev/null || { echo "test/install.sh: npm is needed (Node.js 20 or later)" >&2; exit 1; }
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cp package-lock.json "$stamp"
}

# The programs alone: the package would make a cluster and start it on TCP.
postgres() {
	for dir in $(command -v postgres | xargs -r dirname) /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin; do
		[ -x "$dir/postgres" ] && [ -x "$dir/initdb" ] && [ -x "$dir/createdb" ] || continue
		version=$("$dir/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
		[ "${version:-0}" -lt 15 ] || return 0
	done
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "test/install.sh: PostgreSQL 15 or later is missing, its tests are skipped (Debian: apt-get install postgresql, or this script as root)" >&2
		return
	fi
	mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
	export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold postgresql >/dev/null
}

# The browser for the tests of the console. A function of the same name would be found
# as the command.
browser() {
	for name in chromium chromium-browser google-chrome; do
		! command -v $name >/dev/null || return 0
	done
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "test/install.sh: Chromium is missing, the tests of the console are skipped (Debian: apt-get install chromium, or this script as root)" >&2
		return
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
}

# The message bus for the tests of notices on the desktop. Each runs one of its own.
bus() {
	! command -v dbus-daemon >/dev/null || return 0
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "test/install.sh: dbus-daemon is missing, the tests of the desktop are skipped (Debian: apt-get install dbus-daemon, or this script as root)" >&2
		return
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends dbus-daemon >/dev/null
}

# A home as npx leaves it after the first start of each server, so that a test
# downloads nothing. mcp-grafana is no npm package.
servers() {
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/doorward-test/servers
	stamp=$cache/stamp
	if [ -f "$stamp" ] && cat install.sh servers/pasted.json servers/npmrc | cmp -s - "$stamp"; then
		return
	fi
	command -v npm >/dev/null || { echo "test/install.sh: npm is needed (Node.js 20 or later)" >&2; exit 1; }
	rm -rf "$stamp" "$cache/home/.npm/_npx"
	mkdir -p "$cache/home"
	cp servers/npmrc "$cache/home/.npmrc"
	GOBIN=$cache/home/go/bin go install github.com/grafana/mcp-grafana/cmd/mcp-grafana@v1.6.3
	packages=$(node -p 'Object.values(require("./servers/pasted.json").mcpServers).filter(s => s.command === "npx").map(s => s.args[1]).join("\n")')
	(cd "$cache/home" && echo "$packages" | HOME=$PWD xargs -P 3 -I{} npm exec --yes --loglevel=error --package={} -- true)
	cat install.sh servers/pasted.json servers/npmrc >"$stamp"
}

case "${1:-}" in
clients | postgres | servers | bus) "$1" ;;
chromium) browser ;;
'') clients && postgres && servers && browser && bus ;;
*) echo "usage: test/install.sh [clients|postgres|servers|chromium|bus]" >&2 && exit 2 ;;
esac
