#!/usr/bin/env bash
# Checks that generated files are up to date: it runs the generators in a copy of the tree and
# fails with the difference. It does not change the tree, so it works with uncommitted changes.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# Everything that is or could be committed, minus files deleted but not yet staged.
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    if [[ -e $file ]]; then printf '%s\0' "$file"; fi
  done |
  tar --null --files-from=- -cf - | tar -xf - -C "$copy"

# The contract passes the linter and is compatible with the released one.
"$root/.bin/buf" lint
"$root/.bin/buf" breaking proto --against proto/released.binpb
echo "verify: the contract is additive"

cd "$copy"
git init -q
git add -A

# A deleted query leaves its Go file; an empty folder at the start detects that.
rm -rf internal/store/internal/db gen internal/edge/rest/openapi.json internal/edge/web/view/*_templ.go
"$root/scripts/generate.sh"

if ! "$root/scripts/unchanged.sh" "$copy"; then
  echo "verify: generated files are out of date: run 'make generate' and commit the result" >&2
  exit 1
fi
echo "verify: generated files are up to date"
