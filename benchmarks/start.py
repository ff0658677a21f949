"""Measure how long `ibidem translate` takes for one line, from the start of the process to its end.

    python benchmarks/start.py [--memory memories/it] [--runs 5] [--path OTHER_CHECKOUT/src] [--output out.json]

The first run fills the file cache and is not counted. The benchmark reports the medians of the elapsed time and of the
CPU time (user and system) in seconds. Other programs change the CPU time little. `--path` measures another checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from ibidem.evaluate import describe_machine

LINE = "Zwischenablage einfügen\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--path", type=Path, help="the folder `src` of another checkout")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "ibidem", "translate"]
    command += [] if arguments.memory is None else ["-m", str(arguments.memory)]
    environment = dict(os.environ)
    if arguments.path:
        environment["PYTHONPATH"] = str(arguments.path)
    rows = [run(command, environment) for _ in range(arguments.runs + 1)][1:]
    report = {
        "command": " ".join(sys.argv),
        "machine": describe_machine(),
        "load": os.getloadavg()[0],
        "runs": len(rows),
        **{name: round(statistics.median(row[name] for row in rows), 2) for name in rows[0]},
    }
    written = json.dumps(report, indent=1)
    print(written)
    if arguments.output:
        arguments.output.write_text(written + "\n", encoding="utf-8")


def run(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run a command and return its times in seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, input=LINE.encode(), env=environment, check=True, stdout=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "elapsed": elapsed,
        "user": after.ru_utime - before.ru_utime,
        "system": after.ru_stime - before.ru_stime,
    }


if __name__ == "__main__":
    main()
