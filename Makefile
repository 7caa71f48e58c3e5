# Everything here works on a fresh machine with Go, make and Node.js, as any
# user. `make run`, `make check` and `make test` are the commands to know.

GO      ?= go
BIN     := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The race detector needs a C compiler; without one its absence is said.
# The race detector does not watch SQLite, a C program translated to Go: tests with a
# database take ten times as long when it does.
UNWATCHED := github.com/ncruces/go-sqlite3-wasm/v6
RACE    := $(shell command -v gcc >/dev/null 2>&1 && echo -race -gcflags=$(UNWATCHED)=-race=false)
# Three runs in a row write the results file; `make test` does one and writes none.
CONFORMANCE_RUNS    ?= 3
CONFORMANCE_RESULTS ?= $(CURDIR)/test/conformance/RESULTS.md

.PHONY: build supervisor run check test lint unit unit-packages unit-program unit-as-user powerloss chaos changes interop conformance bench waits fuzz mutate clean install dependencies clients postgres servers chromium bus console count packages packages-test machine

# A supervisor is a small program of its own, which lies in doorward where the tag
# supervisor is set. Elsewhere doorward is its own supervisor.
TARGET := $(shell $(GO) env GOOS)_$(shell $(GO) env GOARCH)
TAGS   := $(if $(filter linux_amd64 linux_arm64,$(TARGET)),-tags supervisor)
IMAGE  := internal/upstream/process/image/child_$(TARGET:linux_%=%)
supervisor:
	@mkdir -p $(BIN)
	$(if $(TAGS),CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o $(BIN)/child ./internal/upstream/process/child)
	@$(if $(TAGS),cmp -s $(BIN)/child $(IMAGE) || mv $(BIN)/child $(IMAGE))

build: supervisor
	$(GO) build $(TAGS) -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN)/doorward ./cmd/doorward
	$(GO) build -C examples/notes-server -trimpath -o $(BIN)/notes-server .

run: build
	$(BIN)/doorward serve --config examples/quickstart.yaml

# check is the loop for an edit: formatting, vet, staticcheck and the unit tests
# without the race detector, on Linux only. Go keeps the results of packages that
# did not change.
check: build
	@out=$$(gofmt -l client cmd examples internal test *.go); test -z "$$out" || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=tools/staticcheck/go.mod staticcheck ./...
	$(SDK_LINT)
	$(GO) test -short -parallel 12 -timeout 5m $$($(GO) list ./... | grep -v -e /cmd/doorward -e /test/)
	$(GO) test -C examples/notes-server -timeout 5m .

# install puts the program where PREFIX says.
PREFIX ?= /usr/local
install: build
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 $(BIN)/doorward "$(DESTDIR)$(PREFIX)/bin/doorward"

# packages writes the files of a release into dist/. The same commit gives the
# same bytes. A tag gives the version; PACKAGES takes flags, for instance
# -version 1.2.3 or -targets linux/amd64.
packages:
	cd tools/packages && $(GO) run . -root $(CURDIR) -dist $(CURDIR)/dist $(PACKAGES)

# packages-test builds them twice, and follows the documents on a machine that it
# makes with debootstrap and systemd-nspawn. Without root or these programs that
# part is skipped, and said so. machine does what needs a few minutes alone.
packages-test:
	test/machine.sh
	$(GO) run ./test/count -tags packages -count=1 -timeout 60m ./test/packages/...

machine:
	test/machine.sh
	$(GO) run ./test/count -skips $(MACHINE_SKIPS) -tags packages -short -count=1 -timeout 30m ./test/packages/...

# One of the tests builds an older revision, which a clone without history lacks.
MACHINE_SKIPS = $(shell git cat-file -e '735bc5e^{commit}' 2>/dev/null && echo test/skips-packages.txt || echo test/skips-packages-shallow.txt)

dependencies: clients postgres servers chromium bus

# clients are the foreign programs of interop and conformance; postgres is the
# other store of the unit tests; servers are what interop pastes.
clients postgres servers chromium bus:
	test/install.sh $@

# SDK_LINT checks the modules that use the official SDK, which is no dependency of Doorward.
SDK_LINT = for m in examples/notes-server test/sdk; do (cd $$m && $(GO) vet ./... && \
	$(GO) tool -modfile=$(CURDIR)/tools/staticcheck/go.mod staticcheck ./...) || exit 1; done

lint:
	@out=$$(gofmt -l client cmd examples internal test *.go); test -z "$$out" || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags interop,waits ./test/...
	$(GO) vet -tags packages ./test/packages
	$(GO) vet -tags chaos ./test/chaos
	$(GO) vet -tags changes ./cmd/doorward
	GOOS=darwin $(GO) vet ./cmd/... ./client/... ./internal/...
	GOOS=windows $(GO) build -o /dev/null ./cmd/doorward
	$(GO) tool -modfile=tools/staticcheck/go.mod staticcheck ./...
	$(SDK_LINT)

# unit runs all Go tests, the fuzz seeds among them, and counts what was skipped.
# SKIPS names a list of the tests that may be skipped, UNITS the packages.
UNITS ?= ./...
SKIPS ?= test/skips.txt
unit: unit-packages unit-program

# LISTED are the packages of UNITS. PROGRAM is the one of them whose tests start the
# program, HOUSE the one whose tests read the code, and LONGEST are those whose tests take
# minutes. Each is empty when UNITS leaves it out.
LISTED  = $(shell $(GO) list $(UNITS))
PROGRAM = $(filter %/cmd/doorward,$(LISTED))
HOUSE   = $(filter $(shell $(GO) list .),$(LISTED))
LONGEST = $(filter %/internal/relay %/upstream/process,$(LISTED))
COUNT   = DOORWARD_BIN=$(BIN)/doorward $(GO) run ./test/count
# NOVET leaves out the part of vet that go test runs: lint runs all of it.
NOVET   = -vet=off

# unit-packages runs the tests of all packages but PROGRAM and HOUSE, with the race
# detector. Those of relay wait for servers half of the time, so four tests of a
# package run at once. Two packages run at once, in the order given, so the longest come
# first. The tests of examples/notes-server, a module of its own, run where UNITS has all.
unit-packages: build count postgres bus
	@test -n "$(RACE)" || echo "note: the race detector is off"
	$(COUNT) $(addprefix -skips ,$(SKIPS)) $(NOVET) $(RACE) -parallel 4 -timeout 40m $(LONGEST) $(filter-out $(PROGRAM) $(HOUSE) $(LONGEST),$(LISTED))
	$(if $(filter ./...,$(UNITS)),cd examples/notes-server && $(BIN)/count $(NOVET) $(RACE) -timeout 10m ./...)

# unit-program runs the tests of HOUSE and of the program, which start some 2,500
# processes, and then those of the program that RACED selects again with the race detector.
# With it a start takes four times as much processor time, and the whole three times.
# Supervisors run from their own program in the first and from the tests' own in the second.
unit-program: build postgres bus
	$(if $(PROGRAM)$(HOUSE),$(COUNT) $(addprefix -skips ,$(SKIPS)) $(NOVET) $(TAGS) -timeout 40m $(HOUSE) $(PROGRAM))
	$(if $(and $(PROGRAM),$(RACE)),$(COUNT) $(NOVET) $(RACE) -timeout 40m -run '$(RACED)' $(PROGRAM))

# RACED selects the tests of the program that run with the race detector too: those
# whose daemon does many things at once. RACED=. selects all.
RACED ?= ^Test($(call anyOf,$(RACED_TESTS)))$$/^($(call anyOf,$(RACED_PARTS)))$$
RACED_TESTS := A.* ManyProcesses.* MailOneOf64.* MailTwoDaemons.* MailASend.* MailBetween.* MailFourWaits.* MailKillsUnderLoad Scripts
RACED_PARTS := SQLite a_caller_that_comes_back agent_first agent_metrics approvals approvals_mail audit_prune bad_upstream \
	connect connect_restart instructions_follow instructions_restart instructions_revoke instructions_tcp legacy_sse \
	limits login oauth reload resolve rotate sharing slow spawn trust ui web_upstream
anyOf = $(subst $(eval ) ,|,$(strip $(1)))

# unit-as-user runs the same as an ordinary user made for it, whose rights
# decide what peers, the sandbox and the files of the state directory allow.
# The other parts do not depend on the user. The race detector ran for root.
unit-as-user:
	test/as-user.sh unit RACE= SKIPS=test/skips-user.txt UNITS="$(UNITS)"

# powerloss takes the daemon's power away, on a file system that forgets what
# was not synced. Where FUSE may not be mounted it says so and goes on, unless
# POWERLOSS=-required.
POWERLOSS ?=
powerloss: build
	cd test/powerloss && $(GO) vet ./... && $(GO) test -count=1 ./... && $(GO) build -o $(BIN)/powerloss .
	$(BIN)/powerloss -doorward $(BIN)/doorward $(POWERLOSS)

# chaos kills daemons and databases under 200 agents that write to each other.
# CHAOS=short is what make test runs.
CHAOS ?= long
chaos: build postgres
	CHAOS=$(CHAOS) DOORWARD_BIN=$(BIN)/doorward $(GO) run ./test/count -tags chaos -count=1 -v -timeout 30m ./test/chaos/...

# changes checks for a time, with acts at random, that each change of a server reaches each
# client. -changes.seed repeats a run.
CHANGES ?= -changes.for 5m
changes: build
	$(COUNT) $(NOVET) -tags changes -count=1 -timeout 60m -run TestEachChangeReachesEachClient ./cmd/doorward $(CHANGES)

# interop waits for its clients two thirds of the time, so three tests run at once.
interop: build clients servers
	$(COUNT) $(NOVET) -tags interop -count=1 -parallel 3 -timeout 45m ./test/interop/...

# waits measures how long agent programs wait for a call, for docs/approvals.md.
waits: build clients
	DOORWARD_BIN=$(BIN)/doorward $(GO) run ./test/count -tags interop,waits -count=1 -parallel 16 -timeout 20m -run TestHowLongClientsWait ./test/interop

# count is the program for the tests of other modules than the root's.
count:
	$(GO) build -o $(BIN)/count ./test/count

# console drives the web console with Chromium. IMAGES=docs/images keeps the
# screenshots of the documentation.
IMAGES ?=
console: build count clients chromium
	cd test/console && $(GO) vet ./...
	cd test/console && DOORWARD_BIN=$(BIN)/doorward CONSOLE_IMAGES=$(abspath $(IMAGES)) $(BIN)/count -count=1 -timeout 10m ./...

# telemetry puts a real OpenTelemetry collector behind the daemon; its first build takes
# some minutes.
telemetry: build
	cd test/telemetry/collector && $(GO) vet . && $(GO) build -o $(BIN)/collector .
	DOORWARD_BIN=$(BIN)/doorward COLLECTOR_BIN=$(BIN)/collector $(GO) run ./test/count -tags interop -count=1 -timeout 10m ./test/telemetry

conformance: build clients
	DOORWARD_BIN=$(BIN)/doorward CONFORMANCE_RUNS=$(CONFORMANCE_RUNS) CONFORMANCE_RESULTS=$(CONFORMANCE_RESULTS) $(GO) run ./test/count -tags interop -count=1 -timeout 30m ./test/conformance/...

# test runs the parts, TEST_JOBS of them at a time, and then chaos alone, which
# measures times. What a part prints appears when it has ended. The longest parts
# begin early. interop waits most of its time, and the parts behind it run beside it.
TEST_JOBS ?= 2
test: build dependencies
	$(MAKE) -j $(TEST_JOBS) --output-sync=target lint unit-packages unit-program powerloss interop machine telemetry console conformance CONFORMANCE_RUNS=1 CONFORMANCE_RESULTS=
	$(MAKE) chaos CHAOS=short

bench: build
	$(GO) run ./test/bench -doorward $(BIN)/doorward $(BENCH)

# fuzz runs every fuzz target for FUZZTIME.
FUZZTIME ?= 30s
fuzz:
	@for p in $$($(GO) list ./internal/... ./client/...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; done

# mutate changes the code of the trust base, of rawjson, of the evidence of the kernel and of
# resolve, one expression at a time, and runs the package's tests each time. It fails when fewer
# than MUTATE_KILLED percent of the changes are noticed. docs/mutation.md has the results.
# MUTATE_SKIP are tests that measure time or allocations, which mutants change.
MUTATE_KILLED   ?= 95
MUTATE_SKIP     ?= Linear|Alloc|Costs
MUTATE_PACKAGES ?= base/rawjson downstream/attest trust/visible trust/lookalike trust/principal trust/wire trust/policy trust/audit trust/gate relay/resolve
mutate:
	$(GO) run ./test/mutate -killed $(MUTATE_KILLED) -skip '$(MUTATE_SKIP)' $(addprefix ./internal/,$(MUTATE_PACKAGES))

clean:
	rm -rf $(BIN) dist test/node_modules
