from . import dual_balancing as dual_balancing
from . import pkgfn as pkgfn

__all__ = ["dual_balancing", "pkgfn"]
