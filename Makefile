# All targets for contributors and CI. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

bin := .bin
generators := $(addprefix $(bin)/,sqlc buf protoc-gen-go protoc-gen-go-grpc protoc-gen-grpc-gateway protoc-gen-connect-openapi templ)
packages ?= ./...
# The limit of a test run; a test that hangs prints its goroutines then.
timeout := 20m
soak ?= 20m

# One cache per directory: cached results of another clone would contain its paths.
export GOLANGCI_LINT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/servo-lint/$(shell pwd | cksum | cut -d ' ' -f 1)

# Tests share one throwaway PostgreSQL, or the server in SERVO_DATABASE_URL.
withpg = go run ./internal/devkit/servotest/withpg --
gotestsum = $(withpg) $(bin)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z\/]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## find or install the tools that tests need beside Go (PostgreSQL >= 15, PgBouncer, Chromium, a C compiler, curl, python3 with venv)
	@scripts/setup.sh

.PHONY: build
build: binary ## compile everything; the binary is ./servo
	CGO_ENABLED=0 go build -trimpath ./...

.PHONY: binary
binary:
	CGO_ENABLED=0 go build -trimpath -o servo ./cmd/servo

# With DuckDB where a C++ compiler exists: 30 MB are downloaded once, and linking takes 8 s longer.
.PHONY: dev-binary
dev-binary:
	@if command -v c++ >/dev/null; then CGO_ENABLED=1 go build -trimpath -tags duckdb -o servo ./cmd/servo && exit; echo "building without DuckDB: custom_sql checks will wait for another worker"; fi; \
	CGO_ENABLED=0 go build -trimpath -o servo ./cmd/servo

.PHONY: dev
dev: dev-binary ## run PostgreSQL, a server and a demo on this machine (args="--no-demo" without the demo)
	@scripts/setup.sh postgresql
	./servo dev $(args)

.PHONY: generate
generate: $(generators) ## run the generators (SQL, the contract and pages to Go, diagrams)
	scripts/generate.sh

.PHONY: verify
verify: $(generators) ## check that generated files are up to date and the contract is compatible
	@scripts/verify.sh

.PHONY: lint
lint: $(bin)/golangci-lint ## run the linters
	$(bin)/golangci-lint run $(packages)

.PHONY: fmt
fmt: $(bin)/golangci-lint ## format the code
	$(bin)/golangci-lint fmt

# The Python SDK. Its tools are installed once into an environment of their own, by uv where it is
# available.
venv := .cache/python
$(venv)/installed: sdk/python/pyproject.toml scripts/python.sh
	@scripts/python.sh $(venv)

.PHONY: test/python
test/python: setup $(venv)/installed ## run the linters and tests of the Python SDK
	cd sdk/python && ../../$(venv)/bin/ruff check . && ../../$(venv)/bin/ruff format --check . && ../../$(venv)/bin/mypy && ../../$(venv)/bin/pytest

.PHONY: test
test: setup $(bin)/gotestsum $(if $(filter ./...,$(packages)),test/pooler test/python) ## run the tests (packages=./internal/domain/run/... for some)
	$(gotestsum) -- -timeout $(timeout) $(packages)

.PHONY: test/race
test/race: setup $(bin)/gotestsum ## run the tests, with the race detector where there is concurrency
	TIMEOUT=$(timeout) $(gotestsum) --raw-command -- scripts/test.sh

# The calls that depend on how connections are used: prepared statements, roles that are set in a
# transaction, notifications, streams.
pooled := ^(TestTrigger|TestClaim|TestReport|TestHeartbeat|TestCancelAndRetry|TestConfigs|TestApplyConfigs|TestTenants|TestWatch|TestStreams|TestEvents|TestKeyService|TestKeysOfCalls|TestLogs|TestFewConnections|TestCommitsThatAreCut|TestChangesAreIdempotent|TestUnheldLeases|TestQuotas|TestRates|TestListRuns|TestListTasks)
.PHONY: test/pooler
test/pooler: setup $(bin)/gotestsum ## run a part of the API's tests through PgBouncer in transaction mode
	SERVO_TEST_PGBOUNCER=1 $(gotestsum) -- -timeout $(timeout) -vet=off -ldflags=-w -run '$(pooled)' ./internal/edge/api

.PHONY: soak
soak: setup ## run the long forms of the tests (soak=20m for each that has a duration)
	SERVO_SOAK=$(soak) go test -v -count=1 -run TestChaos -timeout 24h ./internal/proof/chaos
	SERVO_SOAK=$(soak) go test -v -count=1 -run TestFleet -timeout 24h ./internal/proof/chaos/fleet
	SERVO_SOAK=$(soak) go test -v -count=1 -run TestSilentServer -timeout 24h ./internal/proof/chaos/fleet
	SERVO_SOAK=$(soak) go test -v -count=1 -run TestRace -timeout 1h ./internal/engine
	SERVO_SOAK=1m go test -v -count=1 -tags soak -timeout 1h ./internal/proof/chaos/slots
	SERVO_SOAK=1m go test -v -count=1 -timeout 1h ./internal/proof/chaos/quota
	SERVO_SOAK=1m go test -v -count=1 -timeout 1h ./internal/proof/chaos/rollouts
	SERVO_SOAK=1m SERVO_REQUESTS=18000 go test -v -count=1 -timeout 1h ./internal/proof/chaos/requests
	SERVO_CONFIGS=10000 go test -v -count=1 -run TestApplyManyConfigs -timeout 1h ./internal/cli
	SERVO_TEST_PGBOUNCER=1 $(withpg) go test -count=1 -timeout 1h ./internal/edge/api ./internal/edge/rest ./internal/edge/callbacks
	CGO_ENABLED=1 $(withpg) go test -race -count=1 -timeout 2h ./...

.PHONY: bench
bench: setup ## measure the engine against a PostgreSQL with fsync on
	go run ./cmd/servo bench engine

.PHONY: screenshots
screenshots: setup build ## write screenshots of every page to docs/ui
	@scripts/screenshots.sh

.PHONY: check
check: verify lint test/pooler test/python test/race ## run all checks of CI; the test summary comes last

.PHONY: clean
clean: ## remove built files and tools
	rm -rf $(bin) servo

# Tools are built from their own modules, so that their dependencies stay out of the product, and
# only when a version changes. Without cgo, sqlc uses its parser as WebAssembly, which is slower but
# needs no C compiler.
contract_tools := $(filter-out $(bin)/sqlc $(bin)/templ,$(generators))
$(bin)/sqlc: tool = github.com/sqlc-dev/sqlc/cmd/sqlc
$(bin)/golangci-lint: tool = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(bin)/gotestsum: tool = gotest.tools/gotestsum
$(bin)/buf: tool = github.com/bufbuild/buf/cmd/buf
$(bin)/protoc-gen-go: tool = google.golang.org/protobuf/cmd/protoc-gen-go
$(bin)/protoc-gen-go-grpc: tool = google.golang.org/grpc/cmd/protoc-gen-go-grpc
$(bin)/protoc-gen-grpc-gateway: tool = github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway
$(bin)/protoc-gen-connect-openapi: tool = github.com/sudorandom/protoc-gen-connect-openapi

$(bin)/templ: tool = github.com/a-h/templ/cmd/templ

$(bin)/sqlc $(bin)/golangci-lint $(bin)/gotestsum: tools/go.mod tools/go.sum
	@echo "building $@ (once; a few minutes for the large ones)"
	@mkdir -p $(bin)
	@CGO_ENABLED=0 go build -C tools -o $(CURDIR)/$@ $(tool)

$(contract_tools): tools/contract/go.mod tools/contract/go.sum
	@echo "building $@ (once; a few minutes for the large ones)"
	@mkdir -p $(bin)
	@CGO_ENABLED=0 go build -C tools/contract -o $(CURDIR)/$@ $(tool)

$(bin)/templ: tools/pages/go.mod tools/pages/go.sum
	@echo "building $@ (once)"
	@mkdir -p $(bin)
	@CGO_ENABLED=0 go build -C tools/pages -o $(CURDIR)/$@ $(tool)
