from . import hypergraph_diffusion as hypergraph_diffusion
from . import semirandom_cut as semirandom_cut

__all__ = ["hypergraph_diffusion", "semirandom_cut"]
