"""Methods about how networks are trained: optimizers, initialisation, sparsity, diagnostics."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
