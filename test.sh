#!/usr/bin/env bash
# Installs what the tests need on a fresh Debian machine (as root), starts it on loopback, runs
# every test and stops it again. Arguments go to `cargo test`.
set -euo pipefail
cd "$(dirname "$0")"
services=$PWD/target/test-services
mkdir -p "$services"

installed() { command -v "$1" >/dev/null; }

# What Docker and PostgreSQL need, their own start scripts install.
install_packages() {
  local missing=()
  installed redis-server || missing+=(redis-server)
  installed openssl || missing+=(openssl)
  installed node || missing+=(nodejs)
  installed npm || missing+=(npm)
  installed curl || missing+=(curl)
  installed chromium || missing+=(chromium)
  installed cc || missing+=(gcc libc6-dev)
  [ ${#missing[@]} -eq 0 ] && return
  echo "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$services/apt.log" 2>&1 ||
    { tail -20 "$services/apt.log"; exit 1; }
}

# The real Bull, for the stand-in of n8n's workers.
install_bull() {
  [ -d target/bull/node_modules/bull ] && return
  echo "installing bull"
  mkdir -p target/bull
  cp crates/headcount/tests/bull/package.json target/bull/
  npm install --prefix target/bull --no-package-lock --silent --no-audit --no-fund
}

stop_services() {
  crates/headcount/tests/services/aws.sh stop "$services/aws" || true
  crates/headcount/tests/services/docker.sh stop "$services/docker" || true
  crates/headcount/tests/services/postgres.sh stop "$services/postgres" || true
}

install_packages
install_bull
trap stop_services EXIT
crates/headcount/tests/services/docker.sh start "$services/docker"
(. "$services/docker/env" && crates/headcount/tests/services/aws.sh start "$services/aws" "$DOCKER_HOST")
crates/headcount/tests/services/postgres.sh start "$services/postgres"
export HEADCOUNT_TEST_SERVICES=$services
cargo test --workspace --all-features "$@"
