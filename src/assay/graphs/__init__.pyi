from . import semirandom_cut as semirandom_cut

__all__ = ["semirandom_cut"]
