#!/bin/sh
# Installs the pinned MCP clients, servers and conformance suites under
# test/node_modules, once: a second run does nothing until the lock changes.
# No install script of any package runs; Node itself comes as a package too.
set -eu
cd "$(dirname "$0")"

stamp=node_modules/.doorward-lock
if [ -f "$stamp" ] && cmp -s package-lock.json "$stamp"; then
	exit 0
fi
command -v npm >/dev/null || { echo "test/install.sh: npm is needed (Node.js 20 or later)" >&2; exit 1; }
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
cp package-lock.json "$stamp"
