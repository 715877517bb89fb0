# The image of Headcount, with everything that can be built in:
#   docker build -t headcount:0.1.0 .
# For the `compose` target, which calls `docker compose`:
#   docker build -t headcount:0.1.0-compose --target compose .

FROM rust:1.95-slim-trixie AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY crates crates
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist --package headcount --features full \
    && cp target/dist/headcount /usr/local/bin/headcount

# A shell is there for the `script` and `process` targets. The first process of a container inherits what
# others leave behind, and is deaf to the signals that it does not expect: tini sees to both.
FROM debian:trixie-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates tini \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=65532 --group=65532 /var/lib/headcount
COPY --from=build /usr/local/bin/headcount /usr/local/bin/headcount
ENV HEADCOUNT_STATE_DIR=/var/lib/headcount
VOLUME /var/lib/headcount
# By number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["tini", "-s", "--", "headcount"]
CMD ["run"]

# With Docker's command line and its Compose plugin. Whoever runs it must be let at the socket:
# `group_add` with the group of /var/run/docker.sock.
FROM base AS compose
COPY --from=docker:28-cli /usr/local/bin/docker /usr/local/bin/docker
COPY --from=docker:28-cli /usr/local/libexec/docker/cli-plugins/docker-compose /usr/local/libexec/docker/cli-plugins/docker-compose

FROM base AS headcount
