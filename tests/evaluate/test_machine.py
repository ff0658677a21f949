"""The description of the machine is true, impersonal and light."""

from __future__ import annotations

import getpass
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from ibidem.evaluate import describe_machine
from ibidem.native import native


def test_versions_and_cores_are_the_real_ones() -> None:
    described = describe_machine()

    assert described["python"] == platform.python_version()
    assert described["sacrebleu"] == version("sacrebleu")
    assert described["torch"] == version("torch")
    assert isinstance(described["cores"], int)
    assert described["cores"] >= 1


def test_nothing_personal_is_named() -> None:
    told = " ".join(str(value) for value in describe_machine().values())

    for private in (platform.node(), str(Path.home()), str(Path.cwd())):
        assert private not in told
    assert getpass.getuser() not in told.split()


def test_it_does_not_import_torch() -> None:
    program = "import sys; from ibidem.evaluate import describe_machine; d = describe_machine(); "
    program += "print('torch' in sys.modules, 'gpu' in d)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False"]


def test_the_instructions_in_use_are_named() -> None:
    library = native()
    assert describe_machine().get("native") == (None if library is None else library.build)
