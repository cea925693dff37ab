from . import problems as problems
from ._acquisition import ExpectedImprovementFN as ExpectedImprovementFN
from ._acquisition import KnowledgeGradientFN as KnowledgeGradientFN
from ._acquisition import NetworkPosteriorMean as NetworkPosteriorMean
from ._acquisition import PartialKnowledgeGradientFN as PartialKnowledgeGradientFN
from ._acquisition import ThompsonSamplingFN as ThompsonSamplingFN
from ._acquisition import expected_max_affine as expected_max_affine
from ._model import FunctionNetworkModel as FunctionNetworkModel
from ._network import FunctionNetwork as FunctionNetwork
from ._optimizer import BudgetExhausted as BudgetExhausted
from ._optimizer import FunctionNetworkOptimizer as FunctionNetworkOptimizer
from ._search import NodeCandidate as NodeCandidate
from ._search import optimize_partial_acqf as optimize_partial_acqf

__all__ = [
    "BudgetExhausted",
    "ExpectedImprovementFN",
    "FunctionNetwork",
    "FunctionNetworkModel",
    "FunctionNetworkOptimizer",
    "KnowledgeGradientFN",
    "NetworkPosteriorMean",
    "NodeCandidate",
    "PartialKnowledgeGradientFN",
    "ThompsonSamplingFN",
    "expected_max_affine",
    "optimize_partial_acqf",
    "problems",
]
