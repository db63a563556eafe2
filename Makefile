# Everything is done by packaging/run.py, which also runs where there is no make.

PYTHON ?= python3
COMMANDS := help run test check bench bench-quick test-models corpus placements numeric clean

# Through the environment, because the names of folders may have spaces: this file's, those that
# corpus, placements and numeric read, and the one that make was called from; so may be what is said
# in ARGS to bench.
export MAKEFILE_LIST CASES OTHER HEADERS ROOT DEVICE ARGS
export CALLED_FROM := $(PWD)
.PHONY: $(COMMANDS)
.NOTPARALLEL:

$(COMMANDS):
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "Splitscope needs Python 3.11 or newer and finds no $(PYTHON). On Debian and Ubuntu:"; \
	  echo "  sudo apt install python3 python3-venv"; exit 1; }
	@exec "$(PYTHON)" "$$(dirname "$${MAKEFILE_LIST# }")/packaging/run.py" $@
