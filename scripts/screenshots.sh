#!/usr/bin/env bash
# Writes a screenshot of every page, in light and dark, to docs/ui. It starts `servo dev` on its
# own addresses, lets the demo run for a while and loads the pages in the browser of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly http=127.0.0.1:18980 grpc=127.0.0.1:18981 minutes=${minutes:-2}
home=$(mktemp -d)
chmod 755 "$home" # PostgreSQL has a user of its own when this is root
./servo dev --data-dir "$home/dev" --http "$http" --grpc "$grpc" >"$home/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true; rm -rf "$home"' EXIT

for _ in $(seq 120); do
  if curl -fsS "http://$http/readyz" >/dev/null 2>&1; then break; fi
  kill -0 "$server" 2>/dev/null || { cat "$home/log" >&2; exit 1; }
  sleep 1
done
echo "screenshots: the examples run for $minutes minutes first"
sleep $((minutes * 60))
mkdir -p docs/ui
SERVO_PAGES_OF=http://$http SERVO_SCREENSHOTS=$PWD/docs/ui go test -count=1 -run 'TestScreenshots$' ./internal/edge/web
ls docs/ui
