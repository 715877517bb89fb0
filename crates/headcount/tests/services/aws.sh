#!/bin/bash
# aws.sh start DIR DOCKER_HOST: installs moto and ministack in DIR/venv where they are missing and starts
#                   both on loopback; ministack runs its tasks on that Docker daemon. DIR/env has
#                   their addresses.
# aws.sh stop DIR:  stops them.
# Both may be repeated.
set -euo pipefail
[ $# -ge 2 ] && [ $# -le 3 ] || { echo "usage: aws.sh start DIR DOCKER_HOST | stop DIR" >&2; exit 2; }
verb=$1; dir=$(mkdir -p "$2" && cd "$2" && pwd)

install() {
  python3 -c 'import ensurepip' 2>/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  }
  [ -x "$dir/venv/bin/moto_server" ] && [ -x "$dir/venv/bin/ministack" ] && return
  echo "installing moto and ministack"
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" install -q --disable-pip-version-check 'moto[server]==5.2.5' ministack==1.5.33 docker
}

port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

runs() { [ -f "$dir/$1.pid" ] && grep -qsaF "$dir/venv" "/proc/$(cat "$dir/$1.pid")/cmdline"; }

start() {
  install
  runs moto && runs ministack && return
  stop
  local moto ministack
  moto=$(port) ministack=$(port)
  (cd "$dir"; setsid nohup "$dir/venv/bin/moto_server" -H 127.0.0.1 -p "$moto" \
    >"$dir/moto.log" 2>&1 </dev/null & echo $! >"$dir/moto.pid")
  (cd "$dir"
    export BIND_HOST=127.0.0.1 GATEWAY_PORT=$ministack MINISTACK_HOST=127.0.0.1 DOCKER_HOST=$1 IOT_MTLS_ENABLED=0
    setsid nohup "$dir/venv/bin/ministack" >"$dir/ministack.log" 2>&1 </dev/null &
    echo $! >"$dir/ministack.pid")
  answers "$moto" moto
  answers "$ministack" ministack
  echo "MOTO=127.0.0.1:$moto MINISTACK=127.0.0.1:$ministack" >"$dir/env"
}

answers() {
  for _ in $(seq 600); do (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return; sleep 0.1; done
  tail -5 "$dir/$2.log" >&2
  exit 1
}

stop() {
  local name pid
  for name in moto ministack; do
    # A recorded id may belong to somebody else by now.
    runs "$name" || continue
    pid=$(cat "$dir/$name.pid")
    kill "$pid"
    for _ in $(seq 100); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
    if [ -d "/proc/$pid" ]; then kill -9 "$pid"; fi
    rm -f "$dir/$name.pid"
  done
}

case $verb in
  start) start "${3:?the Docker daemon}" ;;
  stop) stop ;;
  *) echo "usage: aws.sh start DIR DOCKER_HOST | stop DIR" >&2; exit 2 ;;
esac
