#!/bin/sh
# HAProxy as Ray Serve starts it, with this server's changes to the configuration: what they are, and why, stands in
# haproxy.py.
#
# Ray starts this file in HAProxy's place (RAY_SERVE_HAPROXY_BINARY_PATH), at each reload too; $MLX_STACK_HAPROXY is the
# real one, and $MLX_STACK_PYTHON the Python that changes the file.
set -eu
: "${MLX_STACK_HAPROXY:?the path of the real haproxy}"
: "${MLX_STACK_PYTHON:?the path of Python}"
given=""
before=""
for word in "$@"; do
  [ "$before" = "-f" ] && given="$word"
  before="$word"
done
[ -n "$given" ] || exec "$MLX_STACK_HAPROXY" "$@"
umask 077
"$MLX_STACK_PYTHON" -I -S "$(dirname "$0")/haproxy.py" "$given" > "$given.loopback.$$"
mv "$given.loopback.$$" "$given.loopback"
i=$#
while [ "$i" -gt 0 ]; do
  word="$1"
  shift
  [ "$word" = "$given" ] && word="$given.loopback"
  set -- "$@" "$word"
  i=$((i - 1))
done
exec "$MLX_STACK_HAPROXY" "$@"
