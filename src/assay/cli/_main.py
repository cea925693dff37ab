"""Building the application, and turning every way to end into an exit code and at most one sentence.

Exit codes: 0 done; 1 the work failed; 2 bad input; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from .._core.errors import AssayError, InputError, MissingData, MissingExtra, missing_extra
from .._core.registry import card, cards
from .._version import __version__

# Name -> (function, one line of help). The help stands here because the functions are imported only when called.
_GLOBAL = {
    "list": ("assay.cli._commands:list_", "List the methods."),
    "show": ("assay.cli._commands:show", "Show what a method is for, what it needs, and its commands."),
    "demo": ("assay.cli._commands:demo", "Run a method on the real sample that ships with it."),
    "doctor": ("assay.cli._commands:doctor", "Say what this installation has and what is missing."),
}
_CLAIMS = {
    "list": ("assay.claims._cli:list_", "List the claims."),
    "show": ("assay.claims._cli:show", "Show one claim: sentence, rule, margin, sizes."),
    "run": ("assay.claims._cli:run", "Run claims and judge them."),
    "report": ("assay.claims._cli:report", "Write the page of a finished or interrupted run."),
    "diff": ("assay.claims._cli:diff", "Compare two runs or result tables."),
    "export": ("assay.claims._cli:export", "Merge a run's verdicts into the committed results."),
}
_DATA = {
    "list": ("assay.cli._commands:data_list", "List data files, where each one is, and its licence."),
    "fetch": ("assay.cli._commands:data_fetch", "Fetch a method's data files into the cache."),
    "path": ("assay.cli._commands:data_path", "Print where a data file is."),
}


def build(argv: Sequence[str]) -> App:
    """Return the application; only the method that `argv` names gets its verbs, so that no other is imported."""
    app = App(
        name="assay",
        help="Methods of ICML 2024 papers for your own data, and their claims as experiments. "
        "Start with `assay list`, then `assay demo METHOD`.",
        version=__version__,
        help_format="plaintext",
        # The end of every command is decided in `main` alone.
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    for name, (target, text) in _GLOBAL.items():
        app.command(target, name=name, help=text)
    for name, text, commands in (
        ("claims", "List, run and report the claims of the papers.", _CLAIMS),
        ("data", "List, fetch and locate data files that are not in the package.", _DATA),
    ):
        group = App(name=name, help=text, help_format="plaintext")
        for verb, (target, line) in commands.items():
            group.command(target, name=verb, help=line)
        app.command(group)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for item in cards().values():
        group = App(name=[item.slug, *item.aliases], help=item.summary, group="Methods", help_format="plaintext")
        if wanted in (item.slug, *item.aliases):
            from ._verbs import make_command

            for verb, target in item.commands.items():
                # --config is read for the verb that is called; the others are here for their help only.
                group.command(make_command(item, verb, target, argv if argv[1:2] == [verb] else ()), name=verb)
        app.command(group)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    argv = [word for word in argv if word != "--debug"]
    try:
        _run(argv)
    except (CycloptsError, AssayError, KeyboardInterrupt, OSError, Exception) as error:
        if debug:
            raise
        return _explain(error, argv)
    return 0


def _run(argv: list[str]) -> None:
    wanted = next((word for word in argv if not word.startswith("-")), None)
    app = build(argv)
    if wanted is not None and wanted not in {*_GLOBAL, "claims", "data"}:
        close = difflib.get_close_matches(wanted, [*_GLOBAL, "claims", "data"], n=1)
        try:
            card(wanted)  # an unknown name is answered with the closest method
        except InputError as error:
            if close:
                raise InputError(f"There is no command or method {wanted!r}; did you mean {close[0]!r}?") from error
            raise
    app(argv)


def _explain(error: BaseException, argv: list[str]) -> int:
    """Print one sentence for an error and return its exit code."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output (head, less) has gone: nothing is wrong. Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, KeyboardInterrupt):
        _say("interrupted; what was done is kept, and --resume with the same --out goes on.")
        return 130
    if isinstance(error, CycloptsError):
        _say(_one_line(_without_markup(error)))
        return 2
    if isinstance(error, (InputError, MissingExtra, MissingData)):
        _say(_one_line(str(error)))
        return 2
    if isinstance(error, AssayError):
        _say(_one_line(str(error)))
        return 1
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_of(error.name or "")):
        _say(str(missing_extra(error.name or "", extra)))
        return 2
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        _say(f"the system refused{where}: {error.strerror.lower()}.")
        return 1
    if isinstance(error, MemoryError):
        _say("out of memory; use a smaller input or fewer components.")
        return 1
    _say(f"failed: {type(error).__name__}: {_one_line(str(error))} (--debug shows where).")
    return 1


def _extra_of(module: str) -> str:
    """The extra of this distribution whose package holds a module, or nothing."""
    from ._commands import extras

    top = module.partition(".")[0].lower().replace("_", "-")
    # A package is mostly called as its module; PyYAML and its like put "py" before it.
    return next((extra for extra, packages in extras().items() if {top, f"py{top}"} & set(packages)), "")


def _without_markup(error: CycloptsError) -> str:
    with contextlib.suppress(ImportError):
        from rich.text import Text

        return Text.from_markup(str(error)).plain
    return str(error)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _say(sentence: str) -> None:
    print(f"assay: {sentence}", file=sys.stderr)
