from ._advice import advise as advise
from ._advice import what_if as what_if
from ._callbacks import rotation_callback as rotation_callback
from ._checkpoints import SeriesAnalysis as SeriesAnalysis
from ._checkpoints import analyse_checkpoints as analyse_checkpoints
from ._convert import from_rotational as from_rotational
from ._convert import to_rotational as to_rotational
from ._equilibrium import Equilibrium as Equilibrium
from ._equilibrium import equilibrium as equilibrium
from ._equilibrium import lag_factor as lag_factor
from ._equilibrium import predicted_norms as predicted_norms
from ._equilibrium import steps_where_lr_outpaces as steps_where_lr_outpaces
from ._layers import ScaledConv2d as ScaledConv2d
from ._layers import ScaledLinear as ScaledLinear
from ._layers import WSConv2d as WSConv2d
from ._layers import WSLinear as WSLinear
from ._layers import add_gains as add_gains
from ._monitor import RotationMonitor as RotationMonitor
from ._optimizers import Lion as Lion
from ._optimizers import RVAdamW as RVAdamW
from ._optimizers import RVLion as RVLion
from ._optimizers import RVSGD as RVSGD
from ._simulate import simulate_equilibrium as simulate_equilibrium
from ._transfer import Transfer as Transfer
from ._transfer import transfer as transfer
from ._wrapper import RVWrapper as RVWrapper

__all__ = [
    "RVSGD",
    "Equilibrium",
    "Lion",
    "RVAdamW",
    "RVLion",
    "RVWrapper",
    "RotationMonitor",
    "ScaledConv2d",
    "ScaledLinear",
    "SeriesAnalysis",
    "Transfer",
    "WSConv2d",
    "WSLinear",
    "add_gains",
    "advise",
    "analyse_checkpoints",
    "equilibrium",
    "from_rotational",
    "lag_factor",
    "predicted_norms",
    "rotation_callback",
    "simulate_equilibrium",
    "steps_where_lr_outpaces",
    "to_rotational",
    "transfer",
    "what_if",
]
