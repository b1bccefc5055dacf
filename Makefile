# What developers run; PYTHON is the interpreter of an environment with perfmodel[dev].
PYTHON ?= python
BENCHMARKS = startup kernels sweep serving serving_engine workbook cpu_chain

.PHONY: test check bench $(BENCHMARKS:%=bench-%)

test:
	$(PYTHON) -m pytest -q -n 2

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	lint-imports

# Each prints its figures with the machine; `make bench-sweep` runs one.
bench: $(BENCHMARKS:%=bench-%)

$(BENCHMARKS:%=bench-%): bench-%:
	$(PYTHON) benchmarks/$*.py
