#!/bin/bash
# postgres.sh start DIR: installs PostgreSQL, PgBouncer and Python's driver on Debian where they are
#                        missing and starts a PostgreSQL on loopback, as the user `postgres` if this
#                        one is root, for PostgreSQL refuses root. DIR/env says where it is.
# postgres.sh stop DIR:  stops it and removes its data.
# Both may be repeated.
set -euo pipefail
[ $# = 2 ] || { echo "usage: postgres.sh start|stop DIR" >&2; exit 2; }
verb=$1; dir=$(mkdir -p "$2" && cd "$2" && pwd)
[ "$(id -u)" = 0 ] && as=postgres || as=$(id -un)

own() { if [ "$as" = "$(id -un)" ]; then "$@"; else runuser -u "$as" -- "$@"; fi; }

programs() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1; }

install() {
  local missing=()
  [ -n "$(programs)" ] || missing+=(postgresql)
  command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer)
  python3 -c 'import psycopg2' 2>/dev/null || missing+=(python3-psycopg2)
  [ ${#missing[@]} -eq 0 ] && return
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Debian would start a server of its own.
  apt-get install -y -qq --no-install-recommends postgresql-common >/dev/null
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

runs() { [ -f "$dir/data" ] && own "$(programs)/pg_ctl" -D "$(cat "$dir/data")" status >/dev/null 2>&1; }

start() {
  install
  runs && return
  stop
  local bin port data
  bin=$(programs)
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  # Not in DIR: the other user may not be able to reach that.
  data=$(cd / && own mktemp -d -t headcount-postgres.XXXXXX)
  echo "$data" >"$dir/data"
  cd /
  own "$bin/initdb" -D "$data" -A trust -U postgres -N >/dev/null
  own "$bin/pg_ctl" -D "$data" -w -s -l "$data/log" \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$data -c fsync=off -c max_connections=200" start
  echo "POSTGRES=127.0.0.1:$port POSTGRES_BIN=$bin POSTGRES_AS=$as" >"$dir/env"
}

stop() {
  [ -f "$dir/data" ] || return 0
  local data
  data=$(cat "$dir/data")
  cd /
  if runs; then own "$(programs)/pg_ctl" -D "$data" -w -s -m immediate stop; fi
  case $data in */headcount-postgres.*) rm -rf "$data" ;; esac
  rm -f "$dir/data" "$dir/env"
}

case $verb in
  start) start ;;
  stop) stop ;;
  *) echo "usage: postgres.sh start|stop DIR" >&2; exit 2 ;;
esac
