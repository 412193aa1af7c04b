# Needs Go, git and make. `make help` lists the targets.

# A separate module pins the tools, so that the product's go.mod lists only what the product needs. Go builds the tools on
# first use (a few minutes for the linter) and caches them. CGO_ENABLED=0 keeps the linter's cached build valid when a C
# compiler is installed later.
GOLANGCI_LINT = CGO_ENABLED=0 go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

# With -trimpath, what one clone has compiled and linted holds for another, whatever directory it is in.
export GOFLAGS := $(strip -trimpath $(shell go env GOFLAGS))

# What has to compile for js/wasm, too: no driver and no system call may become part of it.
PORTABLE = ./store/internal/lite ./engine/... ./runtime/local

BENCHFLAGS ?=
WEIGHTFLAGS ?=
TESTFLAGS  ?=
RUNFLAGS   ?=
SEED       ?= $(shell date +%s)
MINUTES    ?= 60
COUNT      ?= 50

.DEFAULT_GOAL := help
.PHONY: help run chat test stress soak fuzz matrix outages sim lint fmt bench weight release pictures

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

BUILD = echo "building bin/helix (the first build takes some minutes)" && go build -o bin/helix ./cmd/helix

run: ## serve the demo agents on http://127.0.0.1:4170 (RUNFLAGS="--config helix.yaml" serves yours)
	@$(BUILD)
	@bin/helix serve --allow-unauthenticated $(RUNFLAGS)

chat: ## chat with a demo agent in the terminal
	@$(BUILD)
	@bin/helix chat

test: ## lint, then run every test with the race detector (TESTFLAGS="-run Name" selects some)
	@began=$$(date +%s) && $(MAKE) --no-print-directory lint && HELIX_BEGAN=$$began ./scripts/test.sh $(TESTFLAGS)

stress: ## run one test 50 times beside busy loops, and stall it now and then (TEST=TestName/case PKG=./store/redis COUNT=50)
	@[ -n "$(TEST)" ] && [ -n "$(PKG)" ] || { echo 'make stress needs a test and its package: make stress TEST=TestName/case PKG=./store/redis' >&2; exit 2; }
	@HELIX_STRESS='$(COUNT)' HELIX_STRESS_TEST='$(TEST)' HELIX_STRESS_PKG='$(PKG)' ./scripts/test.sh

soak: ## run every test at full length (up to two hours), then fuzz (two more)
	@HELIX_SOAK=1 HELIX_SECOND_TRY=0 ./scripts/test.sh -timeout 120m $(TESTFLAGS)
	@./scripts/fuzz.sh

fuzz: ## fuzz each decoder of a request body for ten minutes (HELIX_FUZZTIME=1m changes that)
	@./scripts/fuzz.sh

matrix: ## run every scenario on every runtime over Postgres, and print what passed (about ten minutes)
	@CGO_ENABLED=0 go build -o bin/with ./internal/testserver/with
	@HELIX_SOAK=1 bin/with go test -json -count=1 -timeout 60m -run 'TestScenarios/postgres' ./internal/onservers/local ./runtime/temporal ./runtime/dbos | go run ./internal/matrix

outages: ## take the store away from processes at work, and lose replies to their writes, in every way and on every runtime, and print tables (about 80 minutes)
	@CGO_ENABLED=0 go build -o bin/with ./internal/testserver/with
	@HELIX_SOAK=1 bin/with go test -count=1 -timeout 150m -v -run 'TestOutages|TestLostWrites' ./internal/chaos

sim: ## simulate a fleet with faults for an hour of its time (SEED=7 MINUTES=90 selects which, and for how long)
	@go test -count=1 -timeout 24h -v -run TestSimulation ./internal/simulation -seed $(SEED) -minutes $(MINUTES)

lint: ## a build for js/wasm, golangci-lint (which vets), and the checks of imports, of waits in tests and of tests in quarantine
	GOOS=js GOARCH=wasm go build $(PORTABLE)
	$(GOLANGCI_LINT) run ./...
	cd examples/extend && $(GOLANGCI_LINT) run ./... # a module of its own
	go test -count=1 ./internal/layering
	go test -count=1 -run '^TestQuarantine$$' ./internal/gotest

fmt: ## format the code and apply the linter's automatic fixes
	$(GOLANGCI_LINT) run --fix ./...

bench: ## run the benchmarks and print a table (BENCHFLAGS="-quick -json -run REGEXP")
	go run ./bench $(BENCHFLAGS)

weight: ## measure size, modules and cold build of the program and of a user's, and fail above bench/weight/ceilings.json (about five minutes)
	@go run ./bench/weight $(WEIGHTFLAGS)

pictures: ## take the pictures of docs/pictures from the first hour of a newcomer, which a test plays in Chromium
	@mkdir -p docs/pictures && HELIX_SOAK=1 HELIX_TEST_SCREENSHOTS=$(CURDIR)/docs/pictures go test -count=1 -run '^TestFirstHour$$' ./cmd/helix

release: ## tag the commit that is checked out as a release, with its section of CHANGELOG.md (VERSION=v0.1.0)
	@[ -n "$(VERSION)" ] || { echo 'make release needs a version: make release VERSION=v0.1.0' >&2; exit 2; }
	@go run ./internal/release '$(VERSION)'
