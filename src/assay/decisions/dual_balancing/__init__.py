"""Online bidding and other repeated decisions under a hard budget and a long-run ROI target."""

import sys as _sys

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

if "gymnasium" in _sys.modules:
    # A user of environments has gymnasium loaded; nobody else pays for its import.
    from ._env import register as _register

    _register()
