"""Methods of ICML 2024 papers for your own data, and their claims as experiments anyone can run.

Everything is loaded on first use: ``import assay`` imports neither torch nor scikit-learn.
"""

import lazy_loader as _lazy

from ._version import __version__

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__all__ += ["__version__"]
