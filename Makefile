# `make` regenerates everything, `make test` checks everything; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.light
READY := $(VENV)/.ready
BENCH := .venv-bench
PACKAGE := .venv-package
LITE := .venv-lite
NOTEBOOKS := $(sort $(wildcard notebooks/[0-9][0-9]_*.ipynb))
CORES ?= 2

# Limits for the packages and for the environments in which pip builds them; pip ≥ 25.3 has its own name for the latter.
export PIP_CONSTRAINT := $(abspath constraints.txt)
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The kernel python3 is this environment's, whatever else the machine has.
export JUPYTER_PATH := $(abspath $(VENV))/share/jupyter
export PYDEVD_DISABLE_FILE_VALIDATION := 1

REPORT = $(BIN)/python tools/gallery.py && echo "Done. Figures: figures/README.md · tables: results/tables · beside the paper's numbers:" \
	"results/scorecard.csv · executed notebooks: results/notebooks. Next: make lab opens notebooks/00_start_here.ipynb"

# Numba compiles the search and the scores once per machine, before anything is timed or checked.
COMPILE := -c "from cfhelpers import _ranking, _sweep; _ranking.compiled(); _sweep.warm_up()"

.PHONY: all paper test quick-test lint style compiled format notebooks exercises book slides lab lite bench package stress stress-bugs clean help
.DELETE_ON_ERROR:

all: compiled  ## regenerate every table and figure from what the repository carries; what is up to date is skipped
	$(BIN)/python tools/runs.py quick --cores $(CORES)
	@$(REPORT)

paper: compiled  ## the same at full size, on the real data in the folder that CFHELPERS_DATA names
	$(BIN)/python tools/runs.py paper --cores $(CORES)
	@$(REPORT)

test: lint compiled  ## ruff, mypy, pytest, and the notebooks' outputs compared by nbval
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests cfhelpers --doctest-modules -n 2 --dist worksteal -q -m "not stress"
	$(if $(NOTEBOOKS),OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(NOTEBOOKS) --nbval-lax --nbval-current-env \
		--nbval-sanitize-with notebooks/nbval_sanitize.cfg --dist loadscope -n 2 -q -W default)

quick-test: style compiled  ## what a change is most likely to break, in about three minutes, without mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests cfhelpers --doctest-modules -n 2 --dist worksteal -q -m "not slow and not stress"

compiled: $(READY)
	@$(BIN)/python $(COMPILE)

lint: style
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## put modules and notebooks in ruff's format
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

notebooks: compiled  ## execute the notebooks in place, so that the repository holds their outputs
	$(BIN)/python tools/notebooks.py refresh $(NOTEBOOKS)

exercises: compiled  ## make the exercises anew from the solutions, by nbgrader
	$(BIN)/python tools/notebooks.py refresh $(wildcard notebooks/solutions/*.ipynb)
	$(BIN)/python tools/coursework.py exercises

book: $(READY)  ## the notebooks as a web site in build/book/html, to be read without a network
	$(BIN)/python tools/book.py

slides: compiled  ## two decks in build/slides, of 90 and of 20 minutes: offline HTML, and PDF where there is a Chromium
	$(BIN)/python tools/slides.py

lab: $(LIGHT)  ## open JupyterLab at the first notebook; installs what lessons 00 to 05 need, not torch or Ray
	@$(BIN)/python $(COMPILE)
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" notebooks/00_start_here.ipynb

lite: $(if $(PYODIDE),$(LITE)/.ready)  ## the lessons as a site in build/lite that runs in a browser; PYODIDE= is the path or address of a distribution
	@test -n "$(PYODIDE)" || { echo "PYODIDE: found nothing; wanted the path or address of a Pyodide distribution:" \
		"make lite PYODIDE=/path/to/pyodide-314.0.6.tar.bz2 (see the README, In a browser)"; exit 2; }
	$(LITE)/bin/python tools/lite.py "$(PYODIDE)"

bench: $(BENCH)/.ready  ## speed and memory, beside every peer, in an environment of its own
	@$(BENCH)/bin/python $(COMPILE)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH)/bin/python benchmarks/run.py
	$(BENCH)/bin/python benchmarks/audit.py
	$(BENCH)/bin/python benchmarks/peers.py

package: $(PACKAGE)/.ready  ## build sdist and wheel in dist, look at them, and try the wheel in an environment of its own
	rm -rf dist build/lib build/try
	$(PACKAGE)/bin/python -m build
	$(PACKAGE)/bin/twine check --strict dist/*
	$(PACKAGE)/bin/check-wheel-contents dist/*.whl
	$(PYTHON) -m venv build/try/venv
	build/try/venv/bin/python -m pip install --quiet "$$(echo dist/*.whl)[report]"
	cp tools/try_installed.py README.md build/try
	cd build/try && env -u PYTHONPATH venv/bin/python try_installed.py work --readme README.md

STRESS := properties statistics fuzz faults
stress: $(addprefix stress-,$(STRESS)) stress-long  ## try all of it hard, in four parts of up to 30 minutes; COUNT=… sets how often

.PHONY: $(addprefix stress-,$(STRESS)) stress-long
stress-fuzz: .fuzz
$(addprefix stress-,$(STRESS)): stress-%: compiled  ## one part; what was run is written to docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tools/stress.py $* $(if $(COUNT),--count $(COUNT)) -n 2 --dist worksteal

# Finds inputs by coverage; where it cannot be installed, those tests say so and are skipped.
.fuzz:
	-$(BIN)/python -m pip install --quiet --target $@ atheris==3.0.0

stress-long: compiled  ## the tests that take too long for make test, or need a network
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests --ignore tests/stress -q -m stress

stress-bugs: $(READY)  ## break the code on purpose, and see that `make stress` notices
	$(BIN)/python tools/stress.py bugs

clean:  ## remove the environments, the executed copies, the book and the slides
	rm -rf $(VENV) $(BENCH) $(PACKAGE) $(LITE) .fuzz .snakemake results/notebooks build dist

help:  ## list these targets
	@grep -E '^[a-z-]+:.*  ## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*  ## /\1|/' | \
		while IFS='|' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

$(LIGHT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
		f"Python 3.11 or later is needed; $(PYTHON) is {v[0]}.{v[1]}. Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[notebooks]'
	@touch $@

$(READY): $(LIGHT)
	$(BIN)/python -m pip install --quiet --editable '.[study,test,book,course,browser]'
	@$(BIN)/jupyter labextension disable --level=sys_prefix @jupyter/nbgrader >/dev/null 2>&1 || true  # menus for graders
	@touch $@

# An environment of its own: in that of make lab, this kernel would be offered too.
$(LITE)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LITE)
	$(LITE)/bin/python -m pip install --quiet --editable '.[lite]'
	@touch $@

$(PACKAGE)/.ready: constraints.txt
	$(PYTHON) -m venv $(PACKAGE)
	$(PACKAGE)/bin/python -m pip install --quiet build twine check-wheel-contents
	@touch $@

# TorchCP requires torchvision, which it never imports, and torchsort, which is compiled, for CUDA too wherever nvcc is on the PATH.
$(BENCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --editable '.[bench]'
	PATH="$(abspath $(BENCH))/bin:/usr/bin:/bin" $(BENCH)/bin/python -m pip install --quiet --no-build-isolation --no-deps torchsort
	$(BENCH)/bin/python -m pip install --quiet --no-deps torchcp
	@touch $@
