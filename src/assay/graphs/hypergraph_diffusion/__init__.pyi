from ._cuts import CardinalityCut as CardinalityCut
from ._cuts import GaussianMICut as GaussianMICut
from ._cuts import SubmodularCut as SubmodularCut
from ._cuts import potential as potential
from ._cuts import subgradient as subgradient
from ._formats import read_hmetis as read_hmetis
from ._formats import read_labels as read_labels
from ._hypergraph import Hypergraph as Hypergraph
from ._propagation import HypergraphLabelPropagation as HypergraphLabelPropagation
from ._propagation import explain as explain
from ._solve import heat_diffusion as heat_diffusion
from ._solve import hypergraph_pagerank as hypergraph_pagerank
from ._solve import lam_path as lam_path
from ._solve import laplacian_solve as laplacian_solve
from ._sweep import HypergraphLocalClustering as HypergraphLocalClustering
from ._sweep import conductance as conductance
from ._sweep import sweep_cut as sweep_cut
from ._tables import CategoricalEncoder as CategoricalEncoder

__all__ = [
    "CardinalityCut",
    "CategoricalEncoder",
    "GaussianMICut",
    "Hypergraph",
    "HypergraphLabelPropagation",
    "HypergraphLocalClustering",
    "SubmodularCut",
    "conductance",
    "explain",
    "heat_diffusion",
    "hypergraph_pagerank",
    "lam_path",
    "laplacian_solve",
    "potential",
    "read_hmetis",
    "read_labels",
    "subgradient",
    "sweep_cut",
]
