"""Every verb that takes a file answers a bad one with exit code 2 and one sentence that names it."""

import gzip
import inspect
import random
import types
import typing
from pathlib import Path

import pytest

from assay._core.registry import cards
from assay._core.run import Run
from assay.cli._verbs import load
from assay.testing import run_cli

# Endings that a user may try with any method, beside those of the method's own sample.
SUFFIXES = (".csv", ".txt", ".npz", ".pt", ".safetensors", ".json", "")


def _is_path(hint):
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint is Path:
        return True
    return typing.get_origin(hint) in (list, tuple, typing.Union, types.UnionType) and Path in typing.get_args(hint)


def _verbs():
    """(slug, verb, parameters, hints) of every verb with a required file."""
    for card in cards().values():
        for verb, target in card.commands.items():
            job = load(target)  # a verb that cannot be imported must fail here, not vanish from the suite
            hints = typing.get_type_hints(job, localns={"Run": Run}, include_extras=True)
            parameters = [p for p in inspect.signature(job).parameters.values() if p.name != "run"]
            required = [p for p in parameters if p.default is p.empty]
            if any(_is_path(hints[p.name]) for p in required):
                yield pytest.param(card, verb, required, hints, id=f"{card.slug}-{verb}")


def _other_value(hint):
    """Something valid for a required argument that is no file."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    if typing.get_origin(hint) is list:
        return _other_value(typing.get_args(hint)[0])
    return {int: 2, float: 0.1, bool: True}.get(hint, "x")


def _words(required, hints, files):
    """A command line; a verb that takes several files gets all of them, one that takes one gets the first."""
    positional, options = [], []
    for p in required:
        hint = hints[p.name]
        several = p.kind is p.VAR_POSITIONAL or typing.get_origin(hint) in (list, tuple)
        values = (files if several else files[:1]) if _is_path(hint) else [_other_value(hint)]
        if p.kind is p.KEYWORD_ONLY:
            options += [word for value in values for word in (f"--{p.name.replace('_', '-')}", value)]
        else:
            positional += values
    return [*positional, *options]


def _suffixes(card):
    own = {"".join(p.suffixes[-2:] if p.suffix == ".gz" else p.suffixes[-1:]) for p in (card.folder / "data").glob("*")}
    return sorted({*own, *SUFFIXES} - {".md"})


def _garbage():
    return bytes([0x93, 0, 0xFF, 0xFE]) + random.Random(0).randbytes(3000)


def _truncated_gzip():
    return gzip.compress(b"a,b\n1,2\n" * 5000)[:60]


FAULTS = {
    "missing": None,
    "empty": lambda path: path.write_bytes(b""),
    "directory": lambda path: path.mkdir(),
    "garbage": lambda path: path.write_bytes(_garbage()),
    "truncated gzip": lambda path: path.write_bytes(_truncated_gzip()),
    "only blank lines": lambda path: path.write_bytes(b"\n \n\n"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("method", "verb", "required", "hints"), list(_verbs()))
def test_bad_file(method, verb, required, hints, fault, tmp_path):
    for k, suffix in enumerate(_suffixes(method)):
        paths = [tmp_path / f"input_{k}_{copy}{suffix}" for copy in (1, 2, 3)]
        if FAULTS[fault] is not None:
            for path in paths:
                FAULTS[fault](path)
        out = tmp_path / f"out_{k}"
        result = run_cli(method.slug, verb, *_words(required, hints, paths), "--out", out, "--quiet")
        about = f"assay {method.slug} {verb} {paths[0].name} ({fault}): {result.err.strip()!r}"
        assert result.code == 2, about
        assert len(result.err.strip().splitlines()) == 1, about
        assert any(path.name in result.err for path in paths), f"the file is not named: {about}"
        assert "Traceback" not in result.err, about
        assert not result.out.strip(), f"something was printed as if it had worked: {about}"
        left = [p for p in out.rglob("*") if p.is_file() and p.parent.name in ("artefacts", "figures")]
        assert not left, f"half-written: {left}; {about}"
        assert not (out / "result.json").exists(), about
        assert not list(out.rglob(".partial-*")), about


def test_output_folder_that_is_not_ours_is_refused(card, tmp_path):
    """A folder with a user's own files is left alone."""
    (tmp_path / "thesis.txt").write_text("ten years of work")
    result = run_cli("demo", card.slug, "--out", tmp_path, "--quiet", ASSAY_SMOKE="1")
    assert result.code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_negative_seed_is_refused(card, tmp_path):
    result = run_cli("demo", card.slug, "--out", tmp_path / "out", "--seed", "-1", "--quiet")
    assert result.code == 2
    assert "seed" in result.err
