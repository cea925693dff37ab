"""Turning a job, an ordinary function with a `run` argument, into a command with the options that every verb has."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

from cyclopts import Group, Parameter

from .._core.errors import AssayError, InputError
from .._core.files import open_text
from .._core.registry import Card
from .._core.run import Run
from .._core.tracking import make_tracker

_RUN_GROUP = Group("Run", sort_key=10)


def _option(help_text: str, **kwargs: Any) -> Parameter:
    return Parameter(group=_RUN_GROUP, help=help_text, **kwargs)


# The options of every verb, in the order that help shows them.
COMMON: dict[str, tuple[Any, Any]] = {
    "out": (
        Annotated[Path | None, _option("Output folder. Default: runs/COMMAND-TIME below the working folder.")],
        None,
    ),
    "seed": (Annotated[int, _option("The same seed gives the same numbers.")], 0),
    "device": (Annotated[str, _option("cpu, cuda, cuda:INDEX or auto.")], "cpu"),
    "config": (
        Annotated[Path | None, _option("Take arguments from a run's config.toml; options given here win.")],
        None,
    ),
    "resume": (Annotated[bool, _option("Go on with the interrupted run in --out.", negative="")], False),
    "force": (Annotated[bool, _option("Start over in an --out that is not empty.", negative="")], False),
    "track": (Annotated[str | None, _option("Also send numbers to a tracking system: mlflow or mlflow:URI.")], None),
    "quiet": (Annotated[bool, _option("No messages or progress; results are still printed.", negative="")], False),
}


def load(target: str) -> Callable[..., Any]:
    """Import ``module:function``."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise AssayError(f"A card names {target!r}, but {module} has no {name!r}.") from error


def make_command(card: Card, verb: str, target: str, argv: Sequence[str] = ()) -> Callable[..., Any]:
    """Return the command of one verb: the job's own arguments, then the common ones.

    Parameters
    ----------
    card : Card
        The method.
    verb, target : str
        The verb and its ``module:function``.
    argv : sequence of str
        The command line, in which ``--config FILE`` is looked for: its values become the defaults of this command.
    """
    job = load(target)
    hints = typing.get_type_hints(job, localns={"Run": Run}, include_extras=True)
    job_parameters = [p for p in inspect.signature(job).parameters.values() if p.name != "run"]
    several = next((p.name for p in job_parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    types: dict[str, Any] = dict(hints)
    if several is not None:
        types[several] = GenericAlias(tuple, (hints[several], ...))
    stored = _stored_arguments(argv, f"{card.slug} {verb}", [p.name for p in job_parameters], types)
    own = []
    for p in job_parameters:
        # A *FILES parameter cannot have a default; what the configuration says of it is put in when it is called.
        default = p.default if p.name == several else stored.get(p.name, p.default)
        own.append(p.replace(annotation=hints[p.name], default=default))
    if any(p.default is not inspect.Parameter.empty for p in own):  # a default may not stand before a required argument
        positional = [p for p in own if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        gap = any(
            a.default is not inspect.Parameter.empty and b.default is inspect.Parameter.empty
            for a, b in zip(positional, positional[1:])
        )
        if gap:
            raise InputError(
                "--config lacks a required argument that stands behind one it has; give it on the command line."
            )
    taken = {p.name for p in own}
    clash = taken & COMMON.keys()
    if clash:
        raise AssayError(f"The job {target} has an argument {sorted(clash)[0]!r}, which every command has already.")
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=stored.get(name, default))
        for name, (kind, default) in COMMON.items()
    ]

    def command(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        options = {name: values.pop(name) for name in COMMON}
        if several is not None:
            values[several] = values.get(several) or stored.get(several, ())
            if not values[several]:
                raise InputError(f"{card.slug} {verb} needs at least one of {several.upper()}.")
        # A *args parameter of the job (several FILES) arrives as one tuple under its own name.
        call_args: list[Any] = []
        call_kwargs: dict[str, Any] = {}
        for p in own:
            if p.kind is inspect.Parameter.VAR_POSITIONAL:
                call_args.extend(values[p.name])
            elif p.kind is inspect.Parameter.KEYWORD_ONLY:
                call_kwargs[p.name] = values[p.name]
            else:
                call_args.append(values[p.name])
        execute(f"{card.slug} {verb}", lambda run: job(*call_args, **call_kwargs, run=run), values, options)

    signature = inspect.Signature([*own, *common])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    command.__name__ = job.__name__
    command.__doc__ = _without_run(inspect.getdoc(job) or "")
    return command


def execute(name: str, work: Callable[[Run], Any], arguments: dict[str, Any], options: dict[str, Any]) -> None:
    """Open a run, do the work in it, and print where the report is."""
    if options["seed"] < 0:
        raise InputError(f"--seed must be 0 or more, got {options['seed']}.")
    if options["resume"] and options["force"]:
        raise InputError("--resume goes on and --force starts over; give one of them.")
    if options["resume"] and options["out"] is None:
        raise InputError("--resume needs the --out folder of the interrupted run.")
    out = options["out"] or _new_folder(name)
    run = Run(
        out,
        command=name,
        arguments=arguments,
        seed=options["seed"],
        device=options["device"],
        resume=options["resume"],
        force=options["force"],
        tracker=make_tracker(options["track"]),
        verbose=not options["quiet"],
    )
    with run:
        if run.already_done:
            print(f"Nothing to do, the run is complete. Report: {(run.out / 'report.html').resolve()}")
            return
        work(run)
    for key, value in run.results.items():
        if not isinstance(value, (list, dict)):
            from .._core.run import cell

            print(f"{key.replace('_', ' ')}: {cell(value)}")
    print(f"Report: {(run.out / 'report.html').resolve()}", flush=True)


def _new_folder(name: str) -> Path:
    stem = f"{name.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    path = Path("runs") / stem
    number = 2
    while path.exists():
        path = Path("runs") / f"{stem}-{number}"
        number += 1
    return path


def _stored_arguments(argv: Sequence[str], command: str, names: list[str], hints: dict[str, Any]) -> dict[str, Any]:
    path = None
    for word, following in zip(argv, [*argv[1:], ""]):
        if word == "--config":
            path = following
        elif word.startswith("--config="):
            path = word.partition("=")[2]
    if not path:
        return {}
    try:
        stored = tomllib.loads(open_text(path).read())
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"--config {path} is not valid TOML ({error}).") from error
    if stored.get("command", command) != command:
        raise InputError(f"--config {path} is of the command {stored['command']!r}, not {command!r}.")
    for digest_path, digest in stored.get("inputs", {}).items():
        from .._core.files import sha256_file

        if Path(digest_path).is_file() and sha256_file(digest_path) != digest:
            print(f"assay: note: {digest_path} has changed since {path} was written.", file=sys.stderr)
    arguments = stored.get("arguments", {})
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        raise InputError(f"--config {path}: {command} has no argument {unknown[0]!r} (it has: {', '.join(names)}).")
    from pydantic import TypeAdapter, ValidationError

    values: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            values[name] = TypeAdapter(hints[name]).validate_python(value)
        except ValidationError as error:
            raise InputError(
                f"--config {path}: {name} = {value!r} cannot be used ({error.errors()[0]['msg']})."
            ) from error
    for name in ("seed", "device"):
        if name in stored:
            values[name] = stored[name]
    return values


def _without_run(doc: str) -> str:
    """Drop the entry of `run` from a numpydoc parameter section: it is not an option."""
    return (
        re.sub(r"^run ?:[^\n]*\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", "", doc + "\n", flags=re.MULTILINE).rstrip()
        + os.linesep
    )
