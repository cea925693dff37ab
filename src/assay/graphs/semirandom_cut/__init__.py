"""Balanced cuts, partitions and hierarchies of messy graphs, with a certified lower bound."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
