#!/bin/sh
# HAProxy as Ray Serve starts it, with its own two pages (statistics, metrics) on loopback.
#
# Ray 2.60 writes HAProxy's configuration itself and binds those two to all interfaces, whatever `http_options.host` is.
# Ray starts this file in HAProxy's place (RAY_SERVE_HAPROXY_BINARY_PATH); $MLX_STACK_HAPROXY is the real one. The
# front doors, which Ray binds to `http_options.host`, stay as they are: whether they may be open is the server's
# business (deployments/access.py). Where a later Ray names its sections otherwise, they are all closed, not open.
#
# Ray's `splice-request` is taken out: HAProxy 2.8 then doesn't see a client leave whose body came in a packet of its
# own (any HTTP library's), and the tier would go on for nobody. Measured 2026-11-22: with it the Router hears of it at
# the request's end; without it after less than a millisecond.
set -eu
: "${MLX_STACK_HAPROXY:?the path of the real haproxy}"
given=""
before=""
for word in "$@"; do
  [ "$before" = "-f" ] && given="$word"
  before="$word"
done
[ -n "$given" ] || exec "$MLX_STACK_HAPROXY" "$@"
umask 077
awk '
  /^[a-z]/ { door = ($1 == "frontend" && ($2 == "http_frontend" || $2 == "grpc_frontend")) }
  !door && $1 == "bind" { sub(/bind +(\*|0\.0\.0\.0|\[::\]|::)?:/, "bind 127.0.0.1:") }
  $1 == "option" && $2 == "splice-request" { next }
  { print }
' "$given" > "$given.loopback.$$"
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
