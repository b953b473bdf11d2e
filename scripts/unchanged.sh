#!/usr/bin/env bash
# Fails if the files of a Git work tree differ from its index: changed, missing or new.
set -euo pipefail
cd "$1"

# Without --ignore-removal a deleted file would leave the index too, and the difference with it.
git add --intent-to-add --ignore-removal .
git diff --exit-code
