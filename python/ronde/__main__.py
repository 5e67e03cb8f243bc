"""Runs the `ronde` program as `python -m ronde`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
