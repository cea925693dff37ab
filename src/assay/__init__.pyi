from . import bio as bio
from . import claims as claims
from . import data as data
from . import decisions as decisions
from . import graphs as graphs
from . import testing as testing
from . import training as training
from ._core.errors import AssayError as AssayError
from ._core.errors import InputError as InputError
from ._core.errors import MissingData as MissingData
from ._core.errors import MissingExtra as MissingExtra
from ._core.registry import Card as Card
from ._core.registry import card as card
from ._core.registry import cards as cards
from ._core.run import Run as Run
from ._version import __version__ as __version__

__all__ = [
    "AssayError",
    "Card",
    "InputError",
    "MissingData",
    "MissingExtra",
    "Run",
    "__version__",
    "bio",
    "card",
    "cards",
    "claims",
    "data",
    "decisions",
    "graphs",
    "testing",
    "training",
]
