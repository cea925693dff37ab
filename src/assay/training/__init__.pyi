from . import rotational as rotational
from .rotational import RotationMonitor as RotationMonitor
from .rotational import RVAdamW as RVAdamW
from .rotational import RVLion as RVLion
from .rotational import RVSGD as RVSGD

__all__ = ["RVSGD", "RVAdamW", "RVLion", "RotationMonitor", "rotational"]
