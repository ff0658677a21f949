"""A fork server: loads a model once, and forks a writer or a reader of a memory for every command on stdin.

    add FIRST    a child adds the sentences from number FIRST on, one by one, and prints each number when it is added;
                 every seventh time it seals the journal too
    read A,B,…   a child opens the memory, translates these sentences, and prints, as JSON, the pairs that are there,
                 and the weight of each sentence's own pair for every token of its translation

It first prints the process number of the child, and `ended` with the exit status when the child has ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    model_folder, folder, sentences = sys.argv[1:]

    import torch

    from ibidem.combine import FixedCombiner
    from ibidem.decode import Translator
    from ibidem.learn import MemoryWriter
    from ibidem.memory import Memory
    from ibidem.model import load_model

    torch.set_num_threads(1)  # no thread pool may exist when the process forks
    model = load_model(None if model_folder == "shipped" else model_folder, device="cpu")
    assert model.fingerprint
    assert model.tokenizer_fingerprint
    # The states of a random model lie close together: it needs a combiner with a low temperature.
    combiner = None if model_folder == "shipped" else FixedCombiner(4, 0.99, 1e-5)
    pairs = [line.split("\t") for line in Path(sentences).read_text("utf-8").splitlines()]

    def add(first: int) -> None:
        writer = MemoryWriter(folder, model)
        for number in range(first, len(pairs)):
            writer.add_pair(*pairs[number], location=number)
            print(number, flush=True)
            if number % 7 == 0:
                writer.memory.sealed()

    def read(numbers: list[int]) -> None:
        stored = [pair.location for pair in Memory.open(folder).sentences()]
        explanations = Translator(model, folder, combiner=combiner).explain([pairs[number][0] for number in numbers])
        weights = [
            [max(n.weight * n.agrees * (n.pair.location == number) for n in token.neighbours) for token in tokens]
            for number, tokens in zip(numbers, (found.tokens for found in explanations), strict=True)
        ]
        print(json.dumps({"stored": stored, "weights": weights}), flush=True)

    print("ready", flush=True)
    for line in sys.stdin:
        command, numbers = line.split()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if command == "add":
                    add(int(numbers))
                else:
                    read([int(number) for number in numbers.split(",")])
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print("ended", os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
