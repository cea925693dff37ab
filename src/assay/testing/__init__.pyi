from ._acquisition import check_acquisition as check_acquisition
from ._calculator import check_calculator as check_calculator
from ._cases import Case as Case
from ._cases import CheckResult as CheckResult
from ._compare import fingerprint as fingerprint
from ._compare import leaves as leaves
from ._estimator import check_estimator as check_estimator
from ._graph import check_graph_algorithm as check_graph_algorithm
from ._kinds import KINDS as KINDS
from ._kinds import cases_of as cases_of
from ._kinds import check_case as check_case
from ._kinds import checks_for as checks_for
from ._method import check_method as check_method
from ._method import checks_for_method as checks_for_method
from ._module import check_module as check_module
from ._online import check_online_learner as check_online_learner
from ._optimizer import check_optimizer as check_optimizer
from ._run import FakeRun as FakeRun
from ._run import Result as Result
from ._run import data_dir as data_dir
from ._run import run_cli as run_cli

__all__ = [
    "KINDS",
    "Case",
    "CheckResult",
    "FakeRun",
    "Result",
    "cases_of",
    "check_acquisition",
    "check_calculator",
    "check_case",
    "check_estimator",
    "check_graph_algorithm",
    "check_method",
    "check_module",
    "check_online_learner",
    "check_optimizer",
    "checks_for",
    "checks_for_method",
    "data_dir",
    "fingerprint",
    "leaves",
    "run_cli",
]
