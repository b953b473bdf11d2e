#!/usr/bin/env bash
# Runs every generator over the tree it is called in: SQL to Go, the API contract to Go and
# OpenAPI, pages to Go, then `go generate`.
set -euo pipefail

bin=$(cd "$(dirname "$0")/.." && pwd)/.bin

if [[ -f internal/store/sqlc.yaml ]]; then
  "$bin/sqlc" generate -f internal/store/sqlc.yaml
fi
PATH=$bin:$PATH "$bin/buf" generate
"$bin/templ" generate -path internal/edge/web/view -log-level error
go generate ./...
