"""Headline sentences of papers as experiments that anyone can run: declare, run, judge, store and report them."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
