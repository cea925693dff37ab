"""Neural dose-response curves (ARCANet) beside Hill fits, Gaussian processes, ridge and forest baselines."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
