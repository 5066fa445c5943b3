#!/bin/sh
# rabbitmqadmin.sh FOLDER: takes rabbitmqadmin out of Debian's rabbitmq-server, without installing that: it would start a
# broker on the ports of AMQP. Prints where it is.
set -eu
folder=$1
tool="$folder/rabbitmqadmin"
if [ ! -f "$tool" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get -qq -o Acquire::Retries=5 download rabbitmq-server && dpkg -x rabbitmq-server_*.deb unpacked) >&2
    mkdir -p "$folder"
    cp "$(find "$work/unpacked" -name rabbitmqadmin -path '*priv*' | head -n 1)" "$tool"
fi
echo "$tool"
