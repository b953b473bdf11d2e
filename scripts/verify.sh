#!/usr/bin/env bash
# Checks that what is generated is up to date: it runs the generators in a copy of the
# tree and fails with the difference. The tree itself is not touched, so this can be run
# with work half done.
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

# The contract: in style, and with everything that was released still in it.
"$root/.bin/buf" lint
"$root/.bin/buf" breaking proto --against proto/released.binpb
echo "verify: the contract is additive"

cd "$copy"
git init -q
git add -A

# A query that is gone leaves its Go file behind; starting empty shows that too.
rm -rf internal/store/internal/db gen internal/edge/rest/openapi.json internal/edge/web/view/*_templ.go
"$root/scripts/generate.sh"

if ! "$root/scripts/unchanged.sh" "$copy"; then
  echo "verify: generated files are out of date: run 'make generate' and commit the result" >&2
  exit 1
fi
echo "verify: generated files are up to date"
