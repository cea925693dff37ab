"""Progress bars: on a terminal by default, silent in files and notebooks' logs unless asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def track(
    iterable: Iterable[Any] | None = None, *, total: int | None = None, desc: str = "", verbose: bool | None = None
) -> Any:
    """Wrap an iterable in a tqdm bar.

    Parameters
    ----------
    iterable : iterable, optional
        Without one, the returned bar is moved with ``update``.
    total : int, optional
        Number of steps where the iterable has no length.
    desc : str
        What is being done.
    verbose : bool, optional
        True shows the bar everywhere, False nowhere, None only on a terminal.
    """
    from tqdm.auto import tqdm

    disable = not (sys.stderr.isatty() if verbose is None else verbose)
    return tqdm(iterable, total=total, desc=desc, disable=disable, leave=False, dynamic_ncols=True)
