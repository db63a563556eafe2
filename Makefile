# Everything is done by packaging/run.py, which also runs where there is no make.

PYTHON ?= python3
COMMANDS := help run test check bench test-models clean

export MAKEFILE_LIST
.PHONY: $(COMMANDS)
.NOTPARALLEL:

# MAKEFILE_LIST goes through the environment because the folder's name may have spaces.
$(COMMANDS):
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "Splitscope needs Python 3.11 or newer and finds no $(PYTHON). On Debian and Ubuntu:"; \
	  echo "  sudo apt install python3 python3-venv"; exit 1; }
	@exec "$(PYTHON)" "$$(dirname "$${MAKEFILE_LIST# }")/packaging/run.py" $@
