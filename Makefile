# The commands people and CI run. `make` alone explains them.

GO       ?= go
DURATION ?= 20s
SEED     ?= 1
TRIES    ?= 3
MANIFEST ?= testdata/demo/server.yaml
FUZZTIME ?= 10s
SOAK     ?= 10m
RUNS     ?= 3
RECORD   ?= 2m
RECORDALL ?=
PREFIX   ?= /usr/local
ARCH     ?= amd64
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X main.version=$(VERSION)
export EDGERT_PYTHON ?= $(CURDIR)/.venv/bin/python

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what demo needs (Debian packages, ONNX Runtime)
	@tools/setup.sh demo

.PHONY: setup-robot
setup-robot: ## install what edge-rt needs (Debian packages)
	@tools/setup.sh robot

.PHONY: setup-server
setup-server: ## install what lean-server needs (Debian packages, ONNX Runtime)
	@tools/setup.sh server

.PHONY: setup-gpu
setup-gpu: ## install ONNX Runtime for NVIDIA GPUs and CUDA's libraries into .venv-gpu (3 GB; docs/policies.md)
	@tools/setup.sh gpu

.PHONY: build
build: ## build bin/edge-rt, bin/lean-server and bin/bench
	@tools/setup.sh go
	@mkdir -p bin
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: demo
demo: setup build ## run server and simulated arm for 20 s and check what the arm did
	@$(GO) run ./tools/demo --manifest $(MANIFEST) --duration $(DURATION) --seed $(SEED) --tries $(TRIES)

.PHONY: film
film: setup build ## record the README's 20 seconds of the demo anew (ffmpeg)
	@$(GO) run ./tools/film

.PHONY: steady
steady: setup build ## no allocation in 10,000 ticks of the whole edge, three times (9 minutes)
	@$(GO) run ./tools/steady

.PHONY: soak
soak: setup build ## three edges for 10 minutes, the server killed five times
	@$(GO) run ./tools/soak

.PHONY: serve-soak
serve-soak: setup ## robots, hostile nodes and certificates of others at the real server for 10 minutes (SOAK): no chunk of another, memory within its bound, nothing left
	@$(GO) test -run 'TestSoak$$' -v -count=1 -timeout 60m ./cmd/lean-server -soak $(SOAK) -soak-seed $(SEED)

STEADY ?= 5m

.PHONY: serve-steady
serve-steady: setup build ## a busy lean-server for 5 minutes (STEADY), batches and audit included: nothing allocated, the heap flat, nobody held up by the collector
	bin/bench serve --steady $(STEADY) --robots 8 --max-batch 4

.PHONY: replicas
replicas: setup build ## 12 robots and up to three servers behind the official router, which join, end, die, hang: docs/lab/serving.md's table (6 minutes)
	@tools/setup.sh interop
	@$(GO) run ./tools/replicas --tries $(TRIES)

.PHONY: safety
safety: setup build ## what the arm does in each of some fifty single faults: docs/lab/safety.md's table (6 minutes)
	bin/bench safety --json bin/safety.json --into docs/lab/safety.md

.PHONY: record-cost
record-cost: setup build ## what --record all costs, beside runs without and LeRobot's own recording (RUNS runs of RECORD each, RECORDALL are more flags: 25 minutes)
	$(GO) run ./tools/recordall -runs $(RUNS) -time $(RECORD) $(RECORDALL)

.PHONY: why-matrix
why-matrix: setup build ## some sixty faults injected, and what edge-rt why makes of each record: docs/lab/why.md's matrix (8 minutes)
	$(GO) run ./tools/whymatrix --into docs/lab/why.md

.PHONY: safety-soak
safety-soak: setup build ## ten minutes (SOAK) of random faults under the same rules, SEED=N to repeat one
	bin/bench safety --soak $(SOAK) --seed $(SEED)

.PHONY: bus-soak
bus-soak: ## servo driver and bus simulator: 10 minutes (SOAK) of faults at 200 Hz, 10^8 mutations for each side's parsers
	BUS_SOAK=$(SOAK) $(GO) test -count=1 -run BusSoak -v -timeout 0 ./servo
	PARSER_RUNS=100000000 $(GO) test -count=1 -run UnderMutations -v -timeout 0 ./servo/packet ./sim/servosim

.PHONY: record-torn
record-torn: ## the flight recorder's files cut, damaged and killed at a hundred random places each (10 s)
	RECORD_TORN=100 $(GO) test -count=1 -run 'Anywhere|AnyMoment' -v -timeout 20m ./record

.PHONY: soak-wire
soak-wire: ## messages of 64 B, 4 KiB and 100 KiB over the transport for a minute: no allocation
	EDGERT_SOAK=$${EDGERT_SOAK:-1m} $(GO) test -count=1 -run TestSoakAllocatesNothing -v ./wire/zenoh

.PHONY: cut
cut: setup build ## the cable between server and edge is away for 2 s, three times (root, iproute2)
	@$(GO) run ./tools/cut

.PHONY: test
test: ## formatting, vet and all tests, also against independent judges (thirteen minutes of two cores)
	@tools/setup.sh test
	@$(MAKE) --no-print-directory check

.PHONY: test-v4l2
test-v4l2: ## the capture tests on real V4L2 devices, in a machine that QEMU emulates (ARCH=amd64 or arm64)
	@tools/setup.sh v4l2 $(ARCH)
	@nice -n 15 $(GO) run ./tools/v4l2vm --arch $(ARCH)

.PHONY: test-v4l2-edge
test-v4l2-edge: ## the whole edge for a minute on two of the kernel's test cameras, in the same machine
	@tools/setup.sh v4l2 $(shell $(GO) env GOARCH) whole
	@nice -n 15 $(GO) run ./tools/v4l2vm --whole --arch $(shell $(GO) env GOARCH)

# What takes longest begins early: begun last, it leaves a core without work.
LONG := ./cmd/... ./edge/... ./wire/zenoh

.PHONY: check
check: build ## formatting, vet and all tests
	@test -z "$$(gofmt -s -l $$(git ls-files '*.go'))" || { gofmt -s -l $$(git ls-files '*.go'); echo 'gofmt -s these files'; exit 1; }
	$(GO) vet ./...
	EDGERT_BIN=$(CURDIR)/bin $(GO) run ./tools/test -timeout 20m -parallel 4 -vet=off $(LONG) ./...

# The detector watches the process of a test. These start programs that are built
# without it, or read texts: it has nothing to see there.
UNRACED := ./cmd/% ./internal/tidy ./systemd ./tools/%

.PHONY: race
race: ## all tests under the race detector, but for those that start whole programs
	$(GO) run ./tools/test -race -short -timeout 20m ./wire/zenoh $(filter-out $(UNRACED),$(patsubst github.com/edge-rt/edge-rt/%,./%,$(shell $(GO) list ./...)))

.PHONY: dataset-test
dataset-test: export-env ## edge-rt's datasets in LeRobot's own loader, statistics, editing tools and training script (2 minutes)
	@tools/setup.sh test
	@tools/dataset/setup.sh
	DATASET_JUDGE=$(CURDIR)/.venv-export/bin/python $(GO) test -run LeRobotTakesIt -count=1 -v -timeout 10m ./record/dataset

.PHONY: interop
interop: build ## programs that were not written here against ours: servo SDKs, LeRobot's bus classes, the official Zenoh
	@tools/setup.sh interop
	@.venv/bin/python tools/interop/bus/judge.py bin/edge-rt
	@tools/interop/zenoh.sh
	@$(GO) run ./tools/replicas --short --robots 3 --settle 2s --tries $(TRIES) --packages .venv/zenoh-1.10

.PHONY: page-test
page-test: ## the pages of both programs and edge-rt view's in Debian's Chromium (1 minute)
	@tools/setup.sh page
	EDGERT_CHROMIUM=1 $(GO) test -count=1 -timeout 5m -run InChromium ./server ./record/timeline ./cmd/edge-rt

.PHONY: mutants
mutants: ## break the gate, the table and the sights of an arm, one line at a time: a test must notice each (20 s)
	$(GO) run ./tools/mutants

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: chaos
chaos: ## ten minutes of killed routers and bad networks: nothing lost for good, twice or leaked
	@tools/setup.sh test
	CHAOS=10m $(GO) test -count=1 -run 'TestChaos$$' -v -timeout 15m ./wire/zenoh

.PHONY: rust-ping
rust-ping: ## build bin/rust-ping, the official Zenoh that bench wire measures against (cargo, 5 minutes)
	@command -v cargo >/dev/null || { echo 'cargo is missing: install Rust from https://rustup.rs'; exit 1; }
	@mkdir -p bin
	@cargo build -q --release --locked --manifest-path tools/interop/rust-ping/Cargo.toml --target-dir bin/rust
	@cp bin/rust/release/rust-ping bin/rust-ping

.PHONY: sim-full
sim-full: ## closed loop in virtual time, 200 seeds each way at delays of 3, 8 and 16 ticks
	FLEET_FULL=1 $(GO) test -run Full -v -timeout 60m ./sim/fleet

EPISODES ?= 200

.PHONY: compare
compare: build ## every schedule under every fault, EPISODES (200) paired episodes each, in virtual time (an hour of two cores)
	bin/bench faults --virtual --faults compare --schedule drtc,rtc,append,async,v1,sync,rtc+compat,append+compat \
		--episodes $(EPISODES) --duration 6500ms --json bin/compare.json --html bin/compare.html

WORKERS ?= 3

.PHONY: compare-live
compare-live: setup build ## the same on edge-rt and lean-server in real time, 20 episodes each, three (WORKERS) at once (1.5 hours)
	bin/bench faults --faults compare --schedule drtc,rtc,append,async,v1,sync,rtc+compat,append+compat \
		--episodes 20 --duration 6500ms --workers $(WORKERS) --json bin/compare-live.json

.PHONY: train
train: ## train and export the demo policy again (an hour of one core, installs JAX)
	tools/train/run.sh

.PHONY: act
act: export-env ## record, train and export LeRobot's ACT for the simulated arm into testdata/demo/act (a quarter of an hour on two cores, up to an hour when others use them)
	tools/export/examples/act_sim/run.sh

CIRCLE ?=

.PHONY: circle
circle: circle-env ## teach, record, train, serve, run, correct and train on, all of it with the real programs and the simulated arm (an hour and more of two cores; CIRCLE='--from train' goes on, docs/lab/circle.md)
	@$(GO) run ./tools/circle $(CIRCLE)

.PHONY: circle-short
circle-short: circle-env ## the same with a few episodes and training steps: every hand-over, not the success (3 to 6 minutes)
	@$(GO) run ./tools/circle --short $(CIRCLE)

.PHONY: circle-env
circle-env: export-env build
	@tools/setup.sh test
	@tools/dataset/setup.sh

.PHONY: gpu-bench
gpu-bench: ## ACT and SmolVLA at real size on a GPU, beside bare ONNX Runtime and torch: one report (10 GB; docs/lab/gpu.md)
	@tools/gpu/bench.sh

.PHONY: export-env
export-env: ## install edgert-export, which makes bundles of LeRobot checkpoints, into .venv-export (Python 3.12)
	@tools/export/setup.sh

.PHONY: export-test
export-test: export-env ## the exporter against LeRobot's own code on random checkpoints of every family (8 minutes of two cores)
	cd tools/export && ../../.venv-export/bin/python -m pytest -q -n 2 --dist loadfile --ignore tests/test_history.py
	cd tools/export && ../../.venv-export/bin/python -m pytest -q tests/test_history.py # in real time, so alone

.PHONY: export-mutants
export-mutants: export-env ## break the exporter a line at a time: a test must notice each (15 minutes)
	.venv-export/bin/python tools/export/mutants.py

# What is installed must be what the sources say. A build as root would leave root's files in
# the checkout and wants Go on root's PATH, so it happens only where it has to.
.PHONY: programs
programs:
	@test -x bin/edge-rt && test -x bin/lean-server && test -x bin/bench && \
		test -z "$$(find go.mod go.sum $$(ls -d */ | grep -v '^bin/') -type f ! -name '*.md' ! -name '*_test.go' -newer bin/edge-rt 2>/dev/null | head -n 1)" || $(MAKE) --no-print-directory build

ORT  := $(firstword $(wildcard .venv/lib/python3.*/site-packages/onnxruntime/capi/libonnxruntime.so.*))
DEMO := bundle plain still server.yaml still.yaml so101.json
# put FOLDER FILES-OF-systemd: with the paths of PREFIX
put = install -d -m 755 $(1) && for u in $(2); do sed 's,/usr/\(bin\|share\)/,$(PREFIX)/\1/,g' systemd/$$u > $(1)/$$u && chmod 644 $(1)/$$u || exit 1; done

.PHONY: install
install: install-robot install-server ## install both programs, bench, units, udev rules, ONNX Runtime (DESTDIR, PREFIX=/usr/local)

.PHONY: install-shared
install-shared: programs
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin bin/bench
	install -D -m 644 systemd/edge-rt.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/edge-rt.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/edge-rt docs/*.md
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/edge-rt/lab docs/lab/*.md
	rm -rf $(DESTDIR)$(PREFIX)/share/edge-rt/demo
	install -d -m 755 $(DESTDIR)$(PREFIX)/share/edge-rt/demo
	cd testdata/demo && cp -r $(DEMO) $(abspath $(DESTDIR)$(PREFIX))/share/edge-rt/demo/
	chmod -R u=rwX,go=rX $(DESTDIR)$(PREFIX)/share/edge-rt

.PHONY: install-robot
install-robot: install-shared ## install edge-rt, bench, edge-rt's unit and udev rules
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin bin/edge-rt
	install -d -m 755 $(DESTDIR)/etc/edge-rt
	$(call put,$(DESTDIR)$(PREFIX)/lib/systemd/system,edge-rt@.service)
	install -D -m 644 systemd/99-edge-rt.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/99-edge-rt.rules
	@echo 'next, on the robot: sudo systemd-sysusers; sudo systemctl daemon-reload; sudo udevadm control --reload && sudo udevadm trigger (docs/systemd.md)'

.PHONY: install-server
install-server: install-shared ## install lean-server, bench, its unit, ONNX Runtime (from .venv) and an example manifest
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin bin/lean-server
	install -d -m 755 $(DESTDIR)/etc/lean-server
	$(call put,$(DESTDIR)$(PREFIX)/lib/systemd/system,lean-server.service)
	install -D -m 644 examples/server.yaml $(DESTDIR)$(PREFIX)/share/doc/edge-rt/examples/server.yaml
ifneq ($(ORT),)
	rm -f $(DESTDIR)$(PREFIX)/lib/edge-rt/libonnxruntime.so*
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/edge-rt $(ORT)
else
	@echo 'ONNX Runtime is not in .venv and was not installed: run make setup-server, then this again, or set EDGERT_ORT (docs/systemd.md)' >&2
endif
	@echo 'next, for the server as a service: sudo systemd-sysusers; sudo systemctl daemon-reload (docs/systemd.md)'

.PHONY: clean
clean: ## remove what was built and installed here
	rm -rf bin .venv .venv-export
