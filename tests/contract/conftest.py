"""Every contract test runs for every method that the registry finds: no list to edit, none to leave a method out of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay._core.registry import cards
from assay.testing import cases_of, checks_for

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def repository_of():
    """``repository_of(card)``: root of the repository that holds the method, None for an installed package."""
    return lambda card: ROOT if card.folder.is_relative_to(ROOT / "src") else None


def _failing(error):
    def check():
        raise error

    return check


def pytest_generate_tests(metafunc):
    if "card" in metafunc.fixturenames:
        found = [pytest.param(card, id=card.slug) for card in cards().values()]
        metafunc.parametrize("card", found, scope="module")
    if "kind_check" in metafunc.fixturenames:
        kind = metafunc.module.KIND
        params = []
        for card in cards().values():
            try:
                cases = [case for case in cases_of(card) if case.kind == kind]
                bound = [(case, checks_for(case)) for case in cases]
            except Exception as error:  # one broken method must not hide the others: it fails as a test of its own
                if card.kind == kind:
                    params.append(pytest.param(_failing(error), id=f"{card.slug}-cases"))
                continue
            params += [
                pytest.param(check, id=f"{card.slug}-{case.name}-{name}")
                for case, checks in bound
                for name, check in checks
            ]
        metafunc.parametrize("kind_check", params)


class Child:
    """A finished child process: exit code, output and the CPU seconds that it and its children used."""

    def __init__(self, code, out, err, cpu):
        self.code, self.out, self.err, self.cpu = code, out, err, cpu


def _run_child(args, tmp_path, **env):
    """Run a command and measure its CPU time, which other processes on the machine hardly change."""
    with (tmp_path / "child.out").open("w+") as out, (tmp_path / "child.err").open("w+") as err:
        process = subprocess.Popen(args, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env={**os.environ, **env})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Child(process.returncode, out.read(), err.read(), usage.ru_utime + usage.ru_stime)


@pytest.fixture(scope="session")
def run_child():
    """``run_child(args, folder, **env)``: the function behind `child`, for fixtures of wider scope."""
    return _run_child


@pytest.fixture
def child(tmp_path):
    """``child(args, **env)``; ``child.assay(words, **env)`` runs the command line in a fresh interpreter."""

    def run(args, **env):
        return _run_child([str(a) for a in args], tmp_path, **env)

    def assay(*words, **env):
        return run([sys.executable, "-c", "import sys; from assay.cli import main; sys.exit(main())", *words], **env)

    run.assay = assay
    return run
