#!/usr/bin/env bash
# Shows that the layer rules in .golangci.yml still bite. It builds a scratch module of
# empty packages, plants one forbidden import in each, and expects the linter to name
# every one of them; then it turns the imports downwards and expects silence.
#
# A rule whose glob matches nothing is silent for ever: this is the only way to notice.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
linter=$root/.bin/golangci-lint
module=go.arco.dev/servo
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# from → to, all of them against the rules: upwards, sideways, through the wrong door.
forbidden=(
  "internal/fault     $module/internal/id"
  "internal/id        $module/internal/event"
  "internal/event     $module/internal/run"
  "internal/asset     $module/internal/partition"
  "internal/partition $module/internal/plan"
  "internal/run       $module/internal/asset"
  "internal/run       $module/internal/store"
  "internal/schedule  $module/internal/run"
  "internal/store     $module/internal/engine"
  "internal/engine    $module/internal/reaper"
  "internal/admission $module/internal/reaper"
  "internal/reaper    $module/internal/verify"
  "internal/verify    $module/internal/daemon"
  "internal/daemon    $module/internal/bench"
  "internal/bench     $module/internal/cli"
  "internal/engine    $module/internal/devpg"
  "internal/worker    $module/internal/servotest"
  "cmd/servo          $module/internal/daemon"
  "internal/run       github.com/jackc/pgx/v5"
  "internal/engine    github.com/jackc/pgx/v5"
  "internal/cli       database/sql"
  "internal/engine    github.com/stretchr/testify/require"
  "internal/plan      github.com/google/uuid"
  "examples/seed      $module/internal/engine"
)
allowed=(
  "cmd/servo          $module/internal/cli"
  "internal/cli       $module/internal/daemon"
  "internal/cli       $module/internal/bench"
  "internal/daemon    $module/internal/reaper"
  "internal/daemon    $module/internal/devpg"
  "internal/daemon    github.com/jackc/pgx/v5"
  "internal/bench     $module/internal/engine"
  "internal/bench     github.com/jackc/pgx/v5"
  "internal/reaper    $module/internal/engine"
  "internal/verify    $module/internal/store"
  "internal/engine    $module/internal/store"
  "internal/engine    $module/internal/plan"
  "internal/store     $module/internal/run"
  "internal/store     github.com/jackc/pgx/v5"
  "internal/plan      $module/internal/partition"
  "internal/partition $module/internal/asset"
  "internal/run       $module/internal/event"
  "internal/event     $module/internal/id"
  "internal/id        $module/internal/fault"
  "examples/seed      google.golang.org/grpc"
)

# plant NAME PAIR...: a scratch module with these imports and no others.
plant() {
  local dir=$scratch/$1 n=0 pair from to name
  shift
  mkdir -p "$dir"
  cp "$root/.golangci.yml" "$root/go.mod" "$root/go.sum" "$dir/"
  for pair in "$@"; do
    read -r from to <<<"$pair"
    for name in "$from" "${to#"$module/"}"; do
      case $name in internal/* | cmd/* | examples/*) ;; *) continue ;; esac
      mkdir -p "$dir/$name"
      if [[ $name == cmd/* ]]; then
        printf '// Package main is a stub.\npackage main\n\nfunc main() {}\n' >"$dir/$name/stub.go"
      else
        printf '// Package %s is a stub.\npackage %s\n' "${name##*/}" "${name##*/}" >"$dir/$name/stub.go"
      fi
    done
    n=$((n + 1))
    printf 'package %s\n\nimport _ "%s"\n' "$(sed -n 's/^package //p' "$dir/$from/stub.go")" "$to" >"$dir/$from/probe$n.go"
  done
}

# lint NAME: what depguard says about a scratch module, one line per finding. The cache
# is its own: the shared one would answer with the paths of an earlier scratch module.
lint() {
  (cd "$scratch/$1" && GOLANGCI_LINT_CACHE="$scratch/cache" "$linter" run --enable-only depguard --output.text.print-issued-lines=false \
    --show-stats=false --issues-exit-code 0 ./... 2>&1)
}

plant forbidden "${forbidden[@]}"
plant allowed "${allowed[@]}"
missed=0

report=$(lint forbidden)
n=0
for pair in "${forbidden[@]}"; do
  n=$((n + 1))
  read -r from to <<<"$pair"
  if ! grep -q "^$from/probe$n.go:.*(depguard)" <<<"$report"; then
    echo "not caught: $from imports $to" >&2
    missed=$((missed + 1))
  fi
done
if [[ $missed -gt 0 ]]; then
  echo "$report" >&2
  exit 1
fi

report=$(lint allowed)
if [[ -n $report ]]; then
  echo "imports that point down are refused:" >&2
  echo "$report" >&2
  exit 1
fi

echo "layers: ${#forbidden[@]} forbidden imports caught, ${#allowed[@]} allowed ones pass"
