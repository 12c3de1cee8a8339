"""Warnings to the logger "tensorflow", as TensorFlow gives them."""

from __future__ import annotations

import logging
import sys
from typing import Any

_logger = logging.getLogger("tensorflow")


class _ToStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current `sys.stderr`, which tests and notebooks replace, as TensorFlow's logger does."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:  # the root logger's handlers, where there are any, print it already
            self.stream = sys.stderr
            super().emit(record)


def warning(text: str, *args: Any) -> None:
    """Log a warning."""
    if not _logger.handlers:
        handler = _ToStderr()
        handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        _logger.addHandler(handler)
    _logger.warning(text, *args)
