#!/bin/sh
# need.sh WHO COMMAND:PACKAGE ... installs the Debian packages whose commands are missing.
# Root on Debian: installs them. Everybody else: stops with the line that says what to install.
set -eu
who=$1
shift
packages=""
for need in "$@"; do
    PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "${need%%:*}" >/dev/null 2>&1 || packages="$packages ${need#*:}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$packages with apt-get (first use only)"
    export DEBIAN_FRONTEND=noninteractive
    # A mirror that stalls is asked again, and whoever else installs something just now is waited for.
    apt="apt-get -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
    { $apt update && $apt install --yes --no-install-recommends $packages; } >/dev/null
else
    echo "$who need$packages: on Debian, sudo apt-get install$packages" >&2
    exit 1
fi
