# Builds, tests and checks fieldgw. `make` alone lists the targets.
# Each recipe is one shell script that stops at its first error.

.ONESHELL:
.SHELLFLAGS   := -euc
.DEFAULT_GOAL := help
.PHONY: help build demo test check fuzz sim gate killsweep powercut watchcost linkbench interop clean needs

GO       ?= go
GO_MIN   := 1.26
FUZZTIME ?= 10s
EVERY    ?= 1
CUTS     ?= 60
WORLDS   ?= 5000

# What tests use beyond Go. A test that misses one of them says so in the summary.
TEST_PACKAGES := gcc libc6-dev poppler-utils qpdf strace xfsprogs e2fsprogs btrfs-progs rsync git zip unzip openssh-client \
                 openssh-sftp-server python3-tuspy
APT           := DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300

# Servers of other hands, for make interop.
TUSD        := github.com/tus/tusd/v2/cmd/tusd@v2.9.1
VERSITYGW   := github.com/versity/versitygw/cmd/versitygw@v1.8.0
WEB_SERVERS := apache2 lighttpd lighttpd-mod-webdav nginx
TUS_MODULES := @tus/server@2.4.5 @tus/file-store@2.1.1 @uploadx/core@7.0.3

INTERNAL = github.com/fieldgw/fieldgw/internal
VERSION  = $(shell git describe --always --dirty 2>/dev/null)
DATE     = $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
STATIC   = CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X $(INTERNAL)/buildinfo.Version=$(VERSION) -X $(INTERNAL)/clock.BuildDate=$(DATE)'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: needs ## static binaries of all programs, into build/bin
	@mkdir -p build/bin
	$(STATIC) -o build/bin/ ./cmd/...
	ls -l build/bin

demo: build ## show four files through a cut link and a killed daemon to their delivery, on this machine
	@$(GO) run ./test/demo -bin build/bin

test: needs ## all tests, and a summary of what could not be run; root on Debian: installs the packages they use
	@missing=
	for p in $(TEST_PACKAGES); do
		[ "$$(dpkg-query -W -f='$${db:Status-Status}' "$$p" 2>&1 || :)" = installed ] || missing="$$missing $$p"
	done
	if [ -n "$$missing" ]; then
		if ! command -v apt-get >/dev/null; then
			why="this is not Debian"
		elif [ "$$(id -u)" != 0 ]; then
			why="not root"
		else
			echo "the tests need these packages, installing them:$$missing"
			why=
			{ $(APT) update && $(APT) install -y --no-install-recommends $$missing; } || why="apt-get did not succeed"
		fi
		[ -z "$$why" ] || set -- -not-run "installation of what tests use ($$why):$$missing"
	fi
	race=-race
	export CGO_ENABLED=1
	if ! problem=$$($(GO) build -race -o /dev/null ./test/summary 2>&1); then
		race=
		unset CGO_ENABLED
		set -- "$$@" -not-run "race detector, it needs a C compiler: $$(echo "$$problem" | tail -n 1)"
	fi
	# Under the race detector, below, only some of these fit into the time.
	echo "2000 simulated worlds and 1000 histories of the queue"
	$(GO) test -count=1 ./internal/daemon -run 'TestSim$$' -sim.seeds 2000
	$(GO) test -count=1 ./internal/queue -run TestQueueModel -queue.seeds 1000
	# Without the cache of results: it does not see that a program which a test builds and runs has changed.
	$(GO) run ./test/summary "$$@" -- $$race -timeout 20m -count=1 ./...

gate: needs ## run every cell of the plant-room matrix (SEED=…): about ten minutes; root, for small filesystems
	@$(GO) test -count=1 -timeout 2h -v ./test/gate -run 'TestPlantRoomMatrix$$|TestTwoDaemonsOneIdentity' -gate.matrix=full $${SEED:+-gate.seed=$$SEED}

killsweep: needs ## kill both programs at every one of their operations (EVERY=1, SEED=…): about a quarter of an hour
	@$(GO) run ./test/killsweep -target both -every $(EVERY) $${SEED:+-seed $$SEED}

powercut: needs ## cut the power CUTS (60) times under the real programs, explore crash states, lose writes; root (SEED=…)
	@seed=$${SEED:+-seed $$SEED}
	$(GO) run ./test/powercut -cuts $(CUTS) $$seed
	$(GO) run ./test/powercut -explore 200 $$seed
	$(GO) run ./test/powercut -eio 6 $$seed

watchcost: needs ## measure the idle daemon over 10,000 directories for 5 minutes, and a million files in one tree (4 GB)
	@$(GO) run ./test/watchcost

linkbench: needs ## measure the share of bad links that a transfer uses, beside curl's (about 15 minutes)
	@$(GO) run ./test/linkbench

interop: needs ## send to servers of other hands, killed and cut ten times (SEED=…); installs them into build/interop
	@mkdir -p build/interop
	dir=$$PWD/build/interop
	if [ ! -x "$$dir/tusd" ]; then
		GOBIN="$$dir" CGO_ENABLED=0 $(GO) install -ldflags '-s -w' $(TUSD) || echo "tusd could not be installed"
	fi
	if [ ! -x "$$dir/versitygw" ]; then
		GOBIN="$$dir" CGO_ENABLED=0 $(GO) install -ldflags '-s -w' $(VERSITYGW) || echo "versitygw could not be installed"
	fi
	if [ ! -d "$$dir/node_modules/@tus/server" ] && command -v npm >/dev/null; then
		npm install --prefix "$$dir" --no-audit --no-fund $(TUS_MODULES) || echo "the tus servers of npm could not be installed"
	fi
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		$(APT) install -y --no-install-recommends $(WEB_SERVERS) || echo "the web servers could not be installed"
	fi
	$(GO) test -count=1 -timeout 2h -v ./test/interop -interop.size 300000000 -interop.faults 10 $${SEED:+-interop.seed=$$SEED}

sim: needs ## simulate WORLDS (5000) of device, link and server, and as many histories of the queue; servers with every bad answer
	@$(GO) test -timeout 4h ./internal/daemon -run 'TestSim$$' -sim.seeds $(WORLDS)
	$(GO) test -timeout 4h ./internal/queue -run TestQueueModel -queue.seeds $(WORLDS)
	$(GO) test -timeout 4h ./internal/server -run TestEveryOperationFailsOnce -server.stride 1
	$(GO) test -timeout 4h ./internal/uplink $(addprefix ./internal/uplink/,rufh s3 tus wholefile) -run AmongEnemies -uplink.every-status

check: needs ## what CI checks besides the tests: format, vet, staticcheck, house rules, modules, cross builds, scripts
	@step() { echo "== $$*"; }
	step gofmt
	unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .)
	[ -z "$$unformatted" ] || { echo "run gofmt -w on:" $$unformatted; exit 1; }
	step go vet
	$(GO) vet ./...
	$(GO) vet -tags killpoints ./internal/durable
	step staticcheck
	$(GO) build -C tools -o ../build/tools/staticcheck honnef.co/go/tools/cmd/staticcheck
	build/tools/staticcheck ./...
	step style, layers, documents
	$(GO) test -count=1 ./internal/tidy
	step modules
	$(GO) mod verify
	$(GO) -C tools mod verify
	$(GO) mod tidy -diff
	for arch in arm64 arm; do
		step "build for linux/$$arch"
		mkdir -p build/linux-$$arch
		GOOS=linux GOARCH=$$arch GOARM=7 $(STATIC) -o build/linux-$$arch/ ./cmd/...
	done
	step shellcheck
	if command -v shellcheck >/dev/null; then
		grep -rlIE --exclude='*.go' --exclude='*.md' --exclude-dir=.git --exclude-dir=build '^#!.*/(env )?(ba|da)?sh\b' . | xargs shellcheck
	else
		echo "not run: shellcheck is not installed"
	fi

fuzz: needs ## fuzz every target for FUZZTIME (10s)
	@mkdir -p build
	$(GO) test -list '^Fuzz' ./... >build/fuzz.list
	awk '/^Fuzz/ { name[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2, name[i]; n = 0 }' build/fuzz.list >build/fuzz.targets
	[ -s build/fuzz.targets ] || { echo "no fuzz target found"; exit 1; }
	while read -r package name; do
		echo "== $$name"
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null
	done <build/fuzz.targets

clean: ## remove what was built
	@rm -rf build dist

# needs says in words what a machine lacks, before a compiler says it at length.
needs:
	@command -v $(GO) >/dev/null || { echo "Go $(GO_MIN) or newer is needed and there is no '$(GO)' in PATH: install it from https://go.dev/dl/"; exit 1; }
	version=$$($(GO) env GOVERSION) || { echo "Go $(GO_MIN) or newer is needed: install it from https://go.dev/dl/"; exit 1; }
	[ "$$(printf 'go$(GO_MIN)\n%s\n' "$$version" | sort -V | head -n 1)" = go$(GO_MIN) ] ||
		{ echo "Go $(GO_MIN) or newer is needed, this is $$version: install it from https://go.dev/dl/"; exit 1; }
	$(GO) mod download || { echo "modules are missing and cannot be fetched from GOPROXY=$$($(GO) env GOPROXY):" \
		"set GOPROXY to a proxy that this machine reaches, or copy a filled module cache to $$($(GO) env GOMODCACHE)"; exit 1; }
