from . import datasets as datasets
from . import splits as splits
from ._arcanet import ARCANet as ARCANet
from ._baselines import DrugMeanCurve as DrugMeanCurve
from ._baselines import ExpressionRidge as ExpressionRidge
from ._baselines import FunctionalForest as FunctionalForest
from ._baselines import LinearInterpolation as LinearInterpolation
from ._data import DoseResponseData as DoseResponseData
from ._dosing import suggest_doses as suggest_doses
from ._hill import HillFit as HillFit
from ._hill import HillModel as HillModel
from ._hill import MixedEffectsHill as MixedEffectsHill
from ._hill import fit_hill as fit_hill
from ._loss import curve_loss as curve_loss
from ._metrics import curve_metrics as curve_metrics
from ._metrics import noise_floor as noise_floor
from ._network import ARCANetModule as ARCANetModule
from ._residual import CoregionalGP as CoregionalGP
from ._residual import ResidualGP as ResidualGP
from ._screen import biphasic_test as biphasic_test
from ._screen import flag_outlier_replicates as flag_outlier_replicates
from ._screen import normalise_plates as normalise_plates

__all__ = [
    "ARCANet",
    "ARCANetModule",
    "CoregionalGP",
    "DoseResponseData",
    "DrugMeanCurve",
    "ExpressionRidge",
    "FunctionalForest",
    "HillFit",
    "HillModel",
    "LinearInterpolation",
    "MixedEffectsHill",
    "ResidualGP",
    "biphasic_test",
    "curve_loss",
    "curve_metrics",
    "datasets",
    "fit_hill",
    "flag_outlier_replicates",
    "noise_floor",
    "normalise_plates",
    "splits",
    "suggest_doses",
]
