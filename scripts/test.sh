#!/usr/bin/env bash
# Runs the tests as `make check` does and prints their results as JSON, for gotestsum: packages with
# concurrency under the race detector, the others without. One stream, so there is one summary.
#
# The linter has vetted the code already (-vet=off), and tests need no debug symbols (-w links faster).
set -uo pipefail

module=$(go list -m)
flags=(-json -vet=off -ldflags=-w "-timeout=${TIMEOUT:-20m}")

# Packages that start goroutines or share memory, and the chaos tests, which disturb all of them.
racing='^$|^/client$|^/internal/(base/(loop|netguard)|engine|loops|worker|daemon|store|edge/(api|intercept|metrics|oidc|ratelimit|web)|proof/chaos)(/|$)'
# Their processes are started and killed, not shared: the detector would see nothing.
separate='^/internal/(edge/web/(view|graph)|proof/chaos/(quota|rollouts|slots))$'
# The slowest first, so that none of them runs alone at the end.
slowest='engine|cli|proof/verify|edge/web|devkit/guides|store|edge/api|proof/chaos'

with=() without=()
while read -r package; do
  name=${package#"$module"}
  if [[ $name =~ $racing && ! $name =~ $separate ]]; then with+=("$package"); else without+=("$package"); fi
done < <(go list ./... | awk -v slow="/internal/($slowest)" '{print ($0 ~ slow ? 0 : 1), $0}' | sort -s -k1,1 | cut -d ' ' -f 2)

code=0
CGO_ENABLED=1 go test -race "${flags[@]}" "${with[@]}" || code=$?
go test "${flags[@]}" "${without[@]}" || code=$?
# Queries need cgo and a C++ compiler, which the race detector's C compiler comes with.
CGO_ENABLED=1 go test -tags duckdb "${flags[@]}" -run SQL ./internal/data/checks || code=$?
exit $code
