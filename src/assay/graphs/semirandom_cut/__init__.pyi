from ._bisection import SemiRandomBisection as SemiRandomBisection
from ._formats import read_graph as read_graph
from ._formats import read_metis as read_metis
from ._formats import write_metis as write_metis
from ._heavy import remove_heavy as remove_heavy
from ._hierarchy import DasguptaHierarchy as DasguptaHierarchy
from ._hierarchy import dasgupta_cost as dasgupta_cost
from ._instances import adversary as adversary
from ._instances import make_semirandom_cut as make_semirandom_cut
from ._instances import make_semirandom_hsbm as make_semirandom_hsbm
from ._kway import SemiRandomKWay as SemiRandomKWay
from ._rounding import cut_value as cut_value
from ._rounding import sweep_cut as sweep_cut

__all__ = [
    "DasguptaHierarchy",
    "SemiRandomBisection",
    "SemiRandomKWay",
    "adversary",
    "cut_value",
    "dasgupta_cost",
    "make_semirandom_cut",
    "make_semirandom_hsbm",
    "read_graph",
    "read_metis",
    "remove_heavy",
    "sweep_cut",
    "write_metis",
]
