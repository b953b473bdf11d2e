#!/usr/bin/env bash
# Runs every generator over the tree it is called in: SQL to Go, then `go generate`.
set -euo pipefail

bin=$(cd "$(dirname "$0")/.." && pwd)/.bin

if [[ -f internal/store/sqlc.yaml ]]; then
  "$bin/sqlc" generate -f internal/store/sqlc.yaml
fi
go generate ./...
