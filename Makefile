# Everything here works in .venv inside the checkout; nothing is installed elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --disable-pip-version-check --no-compile -q
# On all cores: pip compiles one file after the other, in two fifths of its time. What some
# packages keep for other versions of Python does not compile.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true

# What else pytest is told, as in: make test FLAGS=--last-failed
FLAGS ?=
# Files of tests are run three at a time, on two cores: a fifth of the time they wait for a process.
JOBS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(FLAGS)

# PyTorch is only needed for .pt2 inputs and for building the benchmark models; name a CPU build.
TORCH ?= torch==2.13.0

# Tests start hundreds of processes, and pytest rewrites every assertion: what Python compiles is kept,
# also where the surroundings say that it is not to be (as many containers do).
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint docs test-slow test-cuda test-torch test-zoo bench bench-light bench-search bench-pool clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: lint
	$(PYTEST) -m "not slow and not torch and not cuda and not gpu"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p collage -p benchmarks
	$(BIN)/lint-imports

# The documentation as a site, in out/docs. A broken link or reference fails it, as any warning does.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -E -W --keep-going -b html docs out/docs

# Whole networks, minutes each.
test-slow: $(STAMP)
	$(PYTEST) -n 0 -m "slow and not gpu"

# The CUDA backends on a machine without a GPU: compiled, linked, exported, not run. Compiled
# kernels are kept by content, so a second run takes a fraction of the first.
test-cuda: $(VENV)/.cuda
	$(PYTEST) -m "cuda and not slow and not torch and not gpu"

# PyTorch exported programs as input, and the benchmark models that torch exports.
test-torch: $(VENV)/.bench
	$(PYTEST) -m "torch and not zoo and not cuda and not gpu"

# Every network of the zoo that is installed, imported and compiled; hours. The extra [zoo].
test-zoo: $(VENV)/.bench
	$(PYTEST) -n 0 -m "zoo and not gpu"

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.run

bench-light: $(STAMP)
	$(BIN)/python -m benchmarks.light_models

# How long a search thinks (its networks are the extra [zoo]'s). What sums of parts say of whole models, and what searching again gains.
bench-search: $(VENV)/.bench
	$(BIN)/python -m benchmarks.search_scale
	$(BIN)/python -m benchmarks.sums plain/yolo plain/conv_tasnet plain/hifigan \
	  plain/dcgan_generator plain/quartznet plain/pix2pix light:shufflenet light:squeezenet

bench-pool: $(STAMP)
	$(BIN)/python -m benchmarks.thread_pool

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[cpu]'
	$(COMPILE)
	touch $@

$(STAMP): $(VENV)/.demo
	$(PIP) -e '.[openvino,dev,fleet]'
	$(COMPILE)
	touch $@

$(VENV)/.cuda: $(STAMP)
	$(PIP) -e '.[cuda,tensorrt]'
	$(COMPILE)
	touch $@

$(VENV)/.torch: $(STAMP)
	$(PIP) '$(TORCH)'
	$(COMPILE)
	touch $@

# The reference imports every public package, PyTorch's converters among them.
$(VENV)/.docs: $(VENV)/.torch
	$(PIP) -e '.[docs]'
	$(COMPILE)
	touch $@

$(VENV)/.bench: $(VENV)/.torch
	$(PIP) -e '.[bench]'
	$(COMPILE)
	touch $@

clean:
	rm -rf $(VENV) out build dist *.egg-info
