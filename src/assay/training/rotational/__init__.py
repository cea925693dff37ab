"""Rotational equilibrium: see how fast each layer learns under weight decay, and optimizers that fix that speed."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
