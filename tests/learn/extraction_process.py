"""A fork server: loads a model once, and forks an extraction for every folder that it reads from stdin.

For each folder it prints the process number of the child, and its exit status when it has ended.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("corpus")
    parser.add_argument("--segment-bytes", type=int)
    arguments = parser.parse_args()

    import torch

    from ibidem.learn import ExtractSettings, extract
    from ibidem.model import load_model
    from ibidem.text import Corpus

    torch.set_num_threads(1)  # no thread pool may exist when the process forks
    model = load_model(arguments.model, device="cpu")
    assert model.fingerprint
    settings = ExtractSettings(segment_bytes=arguments.segment_bytes)
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                extract(model, Corpus([arguments.corpus]), Path(line.rstrip("\n")), settings=settings)
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
