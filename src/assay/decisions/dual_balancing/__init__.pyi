from ._balancing import BudgetConstraint as BudgetConstraint
from ._balancing import DualBalancing as DualBalancing
from ._balancing import LinearConstraint as LinearConstraint
from ._balancing import ROIConstraint as ROIConstraint
from ._bidder import AutoBidder as AutoBidder
from ._bidder import Portfolio as Portfolio
from ._env import RepeatedAuctionEnv as RepeatedAuctionEnv
from ._hindsight import hindsight_optimum as hindsight_optimum
from ._hindsight import slater_margin as slater_margin
from ._learners import EXP3 as EXP3
from ._learners import EXP3SIX as EXP3SIX
from ._learners import FixedShareHedge as FixedShareHedge
from ._learners import Hedge as Hedge
from ._learners import OneSidedHedge as OneSidedHedge
from ._learners import OnlineGradientDescent as OnlineGradientDescent
from ._learners import interval_regret as interval_regret
from ._log import BidLog as BidLog
from ._log import counterfactuals as counterfactuals
from ._log import make_log as make_log
from ._mechanisms import FirstPrice as FirstPrice
from ._mechanisms import GeneralizedSecondPrice as GeneralizedSecondPrice
from ._mechanisms import Mechanism as Mechanism
from ._mechanisms import PostedPrice as PostedPrice
from ._mechanisms import SecondPrice as SecondPrice
from ._mechanisms import SoftFloor as SoftFloor
from ._mechanisms import Table as Table
from ._replay import ReplayResult as ReplayResult
from ._replay import replay as replay
from ._replay import simulate as simulate
from ._streams import make_stream as make_stream

__all__ = [
    "EXP3",
    "EXP3SIX",
    "AutoBidder",
    "BidLog",
    "BudgetConstraint",
    "DualBalancing",
    "FirstPrice",
    "FixedShareHedge",
    "GeneralizedSecondPrice",
    "Hedge",
    "LinearConstraint",
    "Mechanism",
    "OneSidedHedge",
    "OnlineGradientDescent",
    "Portfolio",
    "PostedPrice",
    "ROIConstraint",
    "RepeatedAuctionEnv",
    "ReplayResult",
    "SecondPrice",
    "SoftFloor",
    "Table",
    "counterfactuals",
    "hindsight_optimum",
    "interval_regret",
    "make_log",
    "make_stream",
    "replay",
    "simulate",
    "slater_margin",
]
