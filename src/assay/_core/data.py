"""Where data files are: the method's own sample, a folder the user names, the cache, or the network.

Exposed as ``assay.data``.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import InputError, MissingData
from .registry import DataFile, card, cards

__all__ = ["cache_dir", "data_path", "sample_path"]


def cache_dir() -> Path:
    """Return the folder that fetched files are kept in: ``$ASSAY_CACHE_DIR``, or the system's cache folder."""
    if chosen := os.environ.get("ASSAY_CACHE_DIR"):
        return Path(chosen)
    import pooch

    return Path(pooch.os_cache("assay"))


def sample_path(slug: str, name: str) -> Path:
    """Return the path of a file that ships with a method.

    Raises
    ------
    InputError
        If the method ships no such file; lists those it has.
    """
    folder = card(slug).folder / "data"
    path = folder / name
    if not path.is_file():
        have = ", ".join(sorted(p.name for p in folder.glob("*") if p.name != "PROVENANCE.md")) or "none"
        raise InputError(f"The method {slug!r} ships no file {name!r} (it has: {have}).")
    return path


def data_path(slug: str, name: str, *, download: bool = True) -> Path:
    """Return the path of a file outside the repository.

    Searched in this order: ``$ASSAY_DATA_DIR/<slug>/<name>``, the cache, then the address in the method's card, whose
    sha256 must match.

    Parameters
    ----------
    slug : str
        The folder of the file; usually the method's slug.
    name : str
        The file's name.
    download : bool
        False never asks the network.

    Raises
    ------
    MissingData
        If the file is in none of the places; says where to get it and where to put it.
    """
    places = []
    if root := os.environ.get("ASSAY_DATA_DIR"):
        places.append(Path(root) / slug / name)
    places.append(cache_dir() / slug / name)
    for place in places:
        if place.is_file():
            return place
    entry = _entry(slug, name)
    if entry is not None and entry.url and download:
        import pooch

        try:
            return Path(
                pooch.retrieve(
                    entry.url,
                    known_hash=f"sha256:{entry.sha256}" if entry.sha256 else None,
                    fname=name,
                    path=places[-1].parent,
                )
            )
        except (OSError, ValueError) as error:
            raise MissingData(
                f"{name} could not be fetched from {entry.url} ({error}); get it by hand and put it at {places[-1]}"
            ) from error
    source = f" (from {entry.citation})" if entry is not None and entry.citation else ""
    address = f"get it at {entry.url}" if entry is not None and entry.url else "it cannot be fetched automatically"
    raise MissingData(
        f"The data file {name} of {slug}{source} is not here: {address}; put it at {places[-1]} "
        f"or at <folder>/{slug}/{name} with ASSAY_DATA_DIR=<folder>."
    )


def _entry(slug: str, name: str) -> DataFile | None:
    known = cards()
    if slug not in known:
        return None
    return next((item for item in known[slug].data if item.name == name), None)
