#!/bin/sh
# Installs the stock clients that the tests run against the hub and that do not come from PyPI.
# Root on Debian: installs them. Everybody else: stops with the line that says what to install.
set -eu
packages=""
command -v curl >/dev/null 2>&1 || packages="$packages curl"
command -v kcat >/dev/null 2>&1 || packages="$packages kcat"
command -v mosquitto_pub >/dev/null 2>&1 || packages="$packages mosquitto-clients"
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$packages with apt-get (first use only)"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq install --yes --no-install-recommends $packages; } >/dev/null
else
    echo "the tests need$packages: on Debian, sudo apt-get install$packages" >&2
    exit 1
fi
