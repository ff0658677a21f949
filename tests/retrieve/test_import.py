"""The room needs no faiss to be imported and to search exactly."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["faiss"] = None
import numpy, torch
from ibidem.retrieve import ArrayKeys, build_index
index = build_index(ArrayKeys(numpy.eye(4, dtype=numpy.float16)), "auto", seed=0)
print(index.search(torch.eye(4), 1).entries.flatten().tolist())
"""


def test_import_and_exact_search_without_faiss() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[0, 1, 2, 3]", done.stderr
