"""A fork server: loads a tiny model once, and forks an HTTP server for every line on stdin.

    python server_process.py MODEL FOLDER [LIMITS]

LIMITS is a JSON object of limits that replace those of this script.

It prints the process number of the child and the URL when the child is ready, and `ended` when the child has ended.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    model_folder, folder = sys.argv[1:3]
    limits = {"rate": 1e6, "burst": 100_000} | json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}")

    import torch

    from ibidem.combine import FixedCombiner
    from ibidem.decode import SearchSettings, Translator
    from ibidem.model import load_model
    from ibidem.serve import Limits, ServeSettings, make_service, serve

    torch.set_num_threads(1)  # no thread pool may exist when the process forks
    model = load_model(model_folder, device="cpu")
    assert model.fingerprint
    assert model.tokenizer_fingerprint
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                settings = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=12)
                translator = Translator(model, folder, combiner=FixedCombiner(2, 0.9, 0.1), settings=settings)
                service = make_service(translator, ServeSettings(Limits(**limits)))
                serve(service, "127.0.0.1", 0, lambda url: print(os.getpid(), url, flush=True))
                status = 0
            finally:
                os._exit(status)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
