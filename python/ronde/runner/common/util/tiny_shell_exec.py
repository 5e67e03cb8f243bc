"""Runs a shell command and returns its output."""

from __future__ import annotations

import io
import sys
import traceback
from typing import Mapping, Optional

from . import safe_shell_exec


def execute(command: str, env: Optional[Mapping[str, str]] = None) -> Optional[tuple[str, int]]:
    """Returns the command's output, of both streams, and its exit code; None if it cannot be
    run."""
    output = io.StringIO()
    try:
        code = safe_shell_exec.execute(command, env=env, stdout=output, stderr=output)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return None
    return output.getvalue(), code
