# The commands that people and CI run, in three groups. `make` alone lists them; docs/lab/commands.md
# has the rarer ones.

GO       ?= go
DURATION ?= 20s
SEED     ?= 1
ROBOT    ?= so101
TRIES    ?= 3
ROBOT    ?= so101
FUZZTIME ?= 10s
SECONDS  ?= 60
SOAK     ?= 10m
OF       ?= edges
PREFIX   ?= /usr/local
BIN      ?= bin
V4L2     ?=
ARCH     ?= $(if $(V4L2),$(shell $(GO) env GOARCH),amd64)
CIRCLE   ?=
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X main.version=$(VERSION)
export EDGERT_PYTHON ?= $(CURDIR)/.venv/bin/python

.DEFAULT_GOAL := help

##@ use

.PHONY: help
help: ## show this
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s:\n", substr($$0, 5)} \
		/^[a-z0-9-]+( [a-z0-9-]+)*:.*## / {sub(/ .*/, "", $$1); printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup setup-robot setup-server setup-gpu
setup setup-robot setup-server setup-gpu: ## install what demo needs (setup-robot, setup-server: one program's needs; setup-gpu: ONNX Runtime for NVIDIA GPUs, 3 GB)
	@tools/setup.sh $(or $(patsubst setup-%,%,$(filter setup-%,$@)),demo)

.PHONY: build
build: ## build bin/edge-rt, bin/lean-server and bin/bench
	@tools/setup.sh go
	@mkdir -p bin
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: demo
demo: setup build ## run server and simulated arm for 20 s and check what the arm did (ROBOT=bi_so101: two arms; lekiwi)
	@$(GO) run ./tools/demo --robot $(ROBOT) $(if $(MANIFEST),--manifest $(MANIFEST)) --duration $(DURATION) --seed $(SEED) --tries $(TRIES)

.PHONY: export-env
export-env: ## install edgert-export, which makes bundles of LeRobot checkpoints, into .venv-export (Python 3.12)
	@tools/export/setup.sh

# What is installed must be what the sources say. A build as root would leave root's files in
# the checkout and wants Go on root's PATH, so it happens only where it has to.
.PHONY: programs
programs:
	@test $(BIN) != bin || test -x bin/edge-rt && test -x bin/lean-server && test -x bin/bench && \
		test -z "$$(find go.mod go.sum $$(ls -d */ | grep -v '^bin/') -type f ! -name '*.md' ! -name '*_test.go' -newer bin/edge-rt 2>/dev/null | head -n 1)" || $(MAKE) --no-print-directory build

ORT  := $(firstword $(wildcard .venv/lib/python3.*/site-packages/onnxruntime/capi/libonnxruntime.so.*))
DEMO := bundle bi_so101 lekiwi plain still $(addsuffix .yaml,server bi_so101 lekiwi still) so101.json lekiwi.json
# put FOLDER FILES-OF-systemd: with the paths of PREFIX
put = install -d -m 755 $(1) && for u in $(2); do sed 's,/usr/\(bin\|share\)/,$(PREFIX)/\1/,g' systemd/$$u > $(1)/$$u && chmod 644 $(1)/$$u || exit 1; done

.PHONY: install
install: install-robot install-server ## install both programs, bench, units, udev rules, ONNX Runtime (install-robot, install-server: one of them; DESTDIR, PREFIX=/usr/local)

.PHONY: install-shared
install-shared: programs
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/bench
	install -D -m 644 systemd/edge-rt.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/edge-rt.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/edge-rt docs/*.md
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/edge-rt/lab docs/lab/*.md
	rm -rf $(DESTDIR)$(PREFIX)/share/edge-rt/demo
	install -d -m 755 $(DESTDIR)$(PREFIX)/share/edge-rt/demo
	cd testdata/demo && cp -r $(DEMO) $(abspath $(DESTDIR)$(PREFIX))/share/edge-rt/demo/
	chmod -R u=rwX,go=rX $(DESTDIR)$(PREFIX)/share/edge-rt

.PHONY: install-robot install-edge-rt
install-robot: install-shared install-edge-rt
install-edge-rt: programs
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/edge-rt
	install -d -m 755 $(DESTDIR)/etc/edge-rt
	$(call put,$(DESTDIR)$(PREFIX)/lib/systemd/system,edge-rt@.service)
	install -D -m 644 systemd/99-edge-rt.rules $(DESTDIR)$(PREFIX)/lib/udev/rules.d/99-edge-rt.rules
	@echo 'next, on the robot: sudo systemd-sysusers; sudo systemctl daemon-reload; sudo udevadm control --reload && sudo udevadm trigger (docs/systemd.md)'

.PHONY: install-server install-lean-server
install-server: install-shared install-lean-server
install-lean-server: programs
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/lean-server
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

.PHONY: release wheels deb
release: ## wheels and Debian packages for x86-64 and arm64, checksums, SBOM, govulncheck, in dist/ (its parts: make wheels, make deb)
wheels deb release:
	@VERSION='$(VERSION)' tools/pack/$@.sh

.PHONY: test-arm64
test-arm64: # the programs built for arm64, and unit tests under QEMU's user emulation (ARM64=short: tests of pure Go, a minute)
	@VERSION='$(VERSION)' tools/pack/arm64.sh $(ARM64)

##@ develop

# What takes longest begins early, in both halves of the tests: begun last, it leaves a core without work.
LONG := ./cmd/edge-rt ./edge/... ./bringup ./server ./record/dataset ./servo ./wire/zenoh/... ./cmd/... ./bench/safety \
	./tools/whymatrix ./tools/demo ./bench/bus ./tools/soak ./sim/servosim

.PHONY: test
test: ## formatting, vet and all tests, also against independent judges (six minutes of two cores)
	@tools/setup.sh test
	@$(MAKE) --no-print-directory build
	@test -z "$$(gofmt -s -l $$(git ls-files '*.go'))" || { gofmt -s -l $$(git ls-files '*.go'); echo 'gofmt -s these files'; exit 1; }
	$(GO) vet ./...
	EDGERT_BIN=$(CURDIR)/bin $(GO) run ./tools/test -timeout 20m -parallel 6 -vet=off $(LONG) ./...

GOLANGCI := bin/golangci-lint-v2.15.0/golangci-lint

# Its version is part of its path, so that a new version is built and the same one is not: the first
# build takes minutes.
$(GOLANGCI):
	GOBIN=$(abspath $(@D)) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(patsubst bin/golangci-lint-%/,%,$(dir $@))

.PHONY: lint
lint: $(GOLANGCI) ## import layers, banned calls, unused code and other rules of .golangci.yml (golangci-lint; a minute, at first ten)
	@tools/setup.sh robot
	$(GOLANGCI) run ./...

# The detector watches the process of a test. The first of these packages start programs that are built without it, or
# read texts; the others start no goroutine.
UNRACED := ./bringup ./cmd/% ./internal/tidy ./systemd ./tools/% \
	./bench/jpeg ./bench/latency ./bench/report ./chunk/smoothing ./edge/event ./internal/plain ./internal/userfile \
	./policy/safetensors ./rt/backoff ./server/capacity ./servo/packet ./servo/robot ./servo/table ./sim/motor ./wire \
	./wire/lerobot ./wire/ndarray ./wire/pickle ./wire/trained ./wire/zenoh/codec ./wire/zenoh/keyexpr

.PHONY: race
race: ## tests under the race detector, but for those that start whole programs, wait for motors or have one goroutine
	$(GO) run ./tools/test -race -short -vet=off -timeout 20m ./wire/zenoh $(filter-out $(UNRACED),$(patsubst github.com/edge-rt/edge-rt/%,./%,$(shell $(GO) list ./...)))

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: interop
interop: build ## programs that were not written here against ours: servo SDKs, LeRobot's bus classes, the official Zenoh, policy servers
	@tools/setup.sh interop
	@.venv/bin/python tools/interop/bus/judge.py bin/edge-rt
	@tools/interop/zenoh.sh
	@.venv/bin/python tools/interop/policies.py bin --seconds 15
	@$(GO) run ./tools/replicas --short --robots 3 --settle 2s --tries $(TRIES) --packages .venv/zenoh-1.10

.PHONY: interop-lerobot
interop-lerobot: build export-env # LeRobot's policy_server, robot_client and worker, and openpi's and GR00T's servers, for SECONDS each (10 minutes)
	@tools/setup.sh interop
	@.venv/bin/python tools/interop/policies.py bin --seconds $(SECONDS) --lerobot .venv-export/bin/python

.PHONY: worker-kills
worker-kills: build export-env # 100 kills of LeRobot's worker at random moments (20 minutes)
	@tools/setup.sh interop
	@.venv/bin/python tools/interop/worker.py bin .venv-export/bin/python

.PHONY: test-v4l2
test-v4l2: ## the capture tests on real V4L2 devices, in a machine that QEMU emulates (ARCH=amd64 or arm64; V4L2=--whole: the whole edge for a minute)
	@tools/setup.sh v4l2 $(ARCH) $(V4L2:--whole=whole)
	@nice -n 15 $(GO) run ./tools/v4l2vm --arch $(ARCH) $(V4L2)

.PHONY: page-test
page-test: ## the pages of both programs and edge-rt view's in Debian's Chromium, which make test leaves out (1 minute)
	@tools/setup.sh page
	EDGERT_CHROMIUM=1 $(GO) test -count=1 -timeout 5m -run InChromium ./server ./record/timeline ./cmd/edge-rt

.PHONY: rerun-test
rerun-test: # edge-rt view --live --rerun with Rerun's own SDK, viewer and reader (1 minute, 800 MB in .cache/rerun)
	python3 -m venv .cache/rerun
	.cache/rerun/bin/python -m pip install -q --disable-pip-version-check rerun-sdk==0.41.0
	EDGERT_RERUN=$(CURDIR)/.cache/rerun/bin/python $(GO) test -count=1 -run TestRerunShowsARun ./cmd/edge-rt

.PHONY: dataset-test
dataset-test: export-env programs ## edge-rt's datasets in LeRobot's own loader, statistics, editing tools and training script (3 minutes)
	@tools/setup.sh test
	@tools/dataset/setup.sh
	DATASET_JUDGE=$(CURDIR)/.venv-export/bin/python $(GO) test -run LeRobotTakesIt -count=1 -v -timeout 10m ./record/dataset
	EDGERT_LEROBOT=$(CURDIR)/.venv-export/bin/python $(GO) test -run LeRobotsLoop -count=1 ./bench/jitter
	.venv-export/bin/python tools/dataset/robots.py bin/edge-rt

.PHONY: export-test
export-test: export-env ## the exporter against LeRobot's own code on random checkpoints of every family (8 minutes of two cores)
	cd tools/export && ../../.venv-export/bin/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --durations 20 --ignore tests/test_history.py
	cd tools/export && ../../.venv-export/bin/python -m pytest -q tests/test_history.py # in real time, so alone

.PHONY: policy-plugin-test
policy-plugin-test: export-env build # LeRobot's commands with the policy plugin against lean-server (1 minute)
	@tools/setup.sh test
	.venv-export/bin/pip install -q --disable-pip-version-check --no-deps --upgrade --target .cache/policy-plugin \
		-r tools/lerobot_policy_lean/tests/requirements.txt
	cd tools/lerobot_policy_lean && PYTHONPATH=$(CURDIR)/.cache/policy-plugin ../../.venv-export/bin/python -m pytest -q

##@ measure

soak-edges = $(GO) run ./tools/soak --duration $(SOAK)
soak-arm = bin/bench safety --robot $(ROBOT) --soak $(SOAK) --seed $(SEED)
soak-bus = BUS_SOAK=$(SOAK) $(GO) test -count=1 -run BusSoak -v -timeout 0 ./servo && \
	PARSER_RUNS=100000000 $(GO) test -count=1 -run UnderMutations -v -timeout 0 ./servo/packet ./sim/servosim
soak-server = $(GO) test -run 'TestSoak$$' -v -count=1 -timeout 60m ./cmd/lean-server -soak $(SOAK) -soak-seed $(SEED)
soak-busy = bin/bench serve --steady $(SOAK) --robots 8 --max-batch 4
soak-wire = EDGERT_SOAK=$(SOAK) $(GO) test -count=1 -run TestSoakAllocatesNothing -v -timeout 0 ./wire/zenoh
soak-router = tools/setup.sh test && CHAOS=$(SOAK) $(GO) test -count=1 -run 'TestChaos$$' -v -timeout 0 ./wire/zenoh

.PHONY: soak
soak: setup build ## SOAK (10m) of OF=edges: three of them, the server killed five times; or of OF=arm, bus, server, busy, wire, router (docs/lab/commands.md)
	$(or $(soak-$(OF)),$(error OF=$(OF): want edges, arm, bus, server, busy, wire or router))

.PHONY: safety
safety: setup build ## what the arm does in each of some fifty single faults: docs/lab/safety.md's table (6 minutes; ROBOT=bi_so101 or lekiwi: on its parts, 15)
	bin/bench safety --robot $(ROBOT) --json bin/safety.json --into docs/lab/safety.md

.PHONY: replicas
replicas: setup build ## 12 robots and up to three servers behind the official router, which join, end, die, hang: docs/lab/serving.md's table (6 minutes)
	@tools/setup.sh interop
	@$(GO) run ./tools/replicas --tries $(TRIES)

.PHONY: rehearsal
rehearsal: setup build ## a fleet in network namespaces: servers updated, a model rolled out, certificates renewed, a router killed, cables pulled: docs/lab/rehearsal.md's table (root, 5 minutes; REHEARSAL='--robots 12 --prometheus PROGRAM')
	@tools/setup.sh interop
	@$(GO) run ./tools/rehearsal $(REHEARSAL)

.PHONY: boot
boot: export ARCHS := $(or $(ARCHS),amd64)
boot: # the packages in a new Debian under systemd, and ways to break them: docs/lab/systemd.md (root; KERNEL=PACKAGE: in QEMU; ARCHS=arm64)
	@tools/setup.sh boot
	@$(MAKE) --no-print-directory deb
	$(GO) run ./tools/boot --arch $(ARCHS) $(if $(KERNEL),--suite trixie --kernel $(KERNEL)) $(if $(ACCEL),--accel $(ACCEL)) $(if $(RUN),--run '$(RUN)')

.PHONY: why-matrix
why-matrix: setup build ## some sixty faults injected, and what edge-rt why makes of each record: docs/lab/why.md's matrix (8 minutes)
	$(GO) run ./tools/whymatrix --into docs/lab/why.md

.PHONY: steady
steady: setup build ## no allocation in 10,000 ticks of the whole edge, three times (9 minutes; ROBOT=bi_so101: two arms)
	@$(GO) run ./tools/steady --robot $(ROBOT)

.PHONY: circle
circle: export-env build ## teach, record, train, serve, run, correct and train on, with the real programs and the simulated arm (an hour and more of two cores; CIRCLE=--short: 3 to 6 minutes, docs/lab/circle.md)
	@tools/setup.sh test
	@tools/dataset/setup.sh
	@$(GO) run ./tools/circle $(CIRCLE)
