"""Knowledge-gradient optimisation of function networks: which step to run next, at which input, per unit of cost."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
