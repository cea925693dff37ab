from ._execute import prepare as prepare
from ._execute import run as run
from ._execute import run_and_write as run_and_write
from ._models import Accepts as Accepts
from ._models import Bound as Bound
from ._models import Calibrated as Calibrated
from ._models import Claim as Claim
from ._models import Crossing as Crossing
from ._models import Equivalent as Equivalent
from ._models import Identity as Identity
from ._models import NonInferior as NonInferior
from ._models import Ratio as Ratio
from ._models import Slope as Slope
from ._models import Source as Source
from ._models import Superior as Superior
from ._models import Tier as Tier
from ._plan import load as load
from ._rules import Comparison as Comparison
from ._rules import Verdict as Verdict
from ._rules import interval as interval
from ._rules import judge as judge
from ._sources import read_images as read_images
from ._sources import read_user_data as read_user_data
from ._store import ClaimsRun as ClaimsRun
from ._store import load_run as load_run
from ._timing import fingerprint as fingerprint
from ._timing import interleaved as interleaved
from ._timing import stream as stream

__all__ = [
    "Accepts",
    "Bound",
    "Calibrated",
    "Claim",
    "ClaimsRun",
    "Comparison",
    "Crossing",
    "Equivalent",
    "Identity",
    "NonInferior",
    "Ratio",
    "Slope",
    "Source",
    "Superior",
    "Tier",
    "Verdict",
    "fingerprint",
    "interleaved",
    "interval",
    "judge",
    "load",
    "load_run",
    "prepare",
    "read_images",
    "read_user_data",
    "run",
    "run_and_write",
    "stream",
]
