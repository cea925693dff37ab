"""The command line: global commands, and one group per method found by walking the cards."""

from ._main import main

__all__ = ["main"]
