"""Contract checks by kind, and the helpers with which a method's own tests are written (shipped to users)."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
