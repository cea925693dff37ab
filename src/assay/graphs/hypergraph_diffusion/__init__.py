"""Diffusion of labels over hypergraphs: PageRank and Laplacian systems with a certified gap, classes and clusters."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
