"""Fuzz the readers, guided by coverage: `make fuzz`, or `python tests/trust/fuzz/run.py --help`. Needs atheris.

Every target is fuzzed in processes of its own, for its part of the time or of the executions. Each input is read; one
of 16, and those that reach new code, are also written and read again. The latter are kept in `build/fuzz/corpus`, and
the next run continues from them. A finding is kept in `build/fuzz/findings` with its stack trace beside it; when it is
fixed, its input belongs into `tests/trust/fuzz/corpus`, which the everyday tests read. `build/fuzz/counts.json` has the
executions, the time and the findings of all runs by target.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SEEDS = Path(__file__).with_name("corpus")
MAX_TOKENS = 300
# Small inputs are read faster and reach the same code; archives need room for their directories.
MAX_LENGTH, MAX_ARCHIVE = 512, 4096
ARCHIVES = ("docx", "xlsx", "odt", "mo", "gzip", "xz")
# Targets differ in speed: one may have this many times its part of the executions, if it has the time.
EXCESS = 4
# The inputs that reached new code are looked up after this many executions. Files have the time of the last clock tick.
KEPT_EVERY = 512
CLOCK_TICK = 20_000_000
# After this many findings in one target the rest of its time is left: it must be fixed first.
MAX_FINDINGS = 5


def seed_folder(target: str) -> Path:
    """Return the folder of the inputs of a target that belong to the project; targets of one format share it."""
    return SEEDS / target.partition(".")[0]


def fuzz_one(target: str, arguments: list[str]) -> None:
    """Fuzz a target in this process, which ends in it. The arguments are those of libFuzzer."""
    import atheris

    sys.path.insert(0, str(ROOT / "tests"))
    with atheris.instrument_imports(include=["ibidem", "multipart"]):
        from trust.fuzz.readers import check_input, is_sampled

    prefix = next(each.partition("=")[2] for each in arguments if each.startswith("-artifact_prefix="))
    corpus = Path(next(each for each in arguments if not each.startswith("-")))
    executions = 0
    checked = CLOCK_TICK  # those of earlier runs are checked too, since the readers may have changed

    def check_kept() -> None:
        """Check in full the inputs that were kept since the last time, because they reached new code."""
        nonlocal checked
        before, checked = checked - CLOCK_TICK, time.time_ns()
        if corpus.stat().st_mtime_ns >= before:
            for file in corpus.iterdir():
                if file.stat().st_mtime_ns >= before:
                    check_fully(file.read_bytes(), full=True)

    def check_fully(data: bytes, full: bool) -> None:
        try:
            check_input(target, data, full=full)
        except BaseException:
            # The fuzzer writes the input that it made last, and none if it fails while it reads its corpus.
            file = Path(f"{prefix}{hashlib.sha256(data).hexdigest()[:16]}")
            file.write_bytes(data)
            print(f"Finding: {file}", flush=True)
            raise

    def check(data: bytes) -> None:
        nonlocal executions
        executions += 1
        if executions % KEPT_EVERY == 0:
            check_kept()
        check_fully(data, is_sampled(data))

    atexit.register(check_kept)
    atheris.Setup([sys.argv[0], *arguments], check)
    atheris.Fuzz()


def write_dictionary(target: str, file: Path) -> None:
    """Write the tokens of the seeds of a target, for the fuzzer to put into inputs."""
    tokens: Counter[bytes] = Counter()
    for seed in seed_folder(target).iterdir():
        tokens.update(re.findall(rb"<[^<>]{1,40}>|[\w:.@%-]{2,24}|[^\w\s]{1,6}|\r\n", seed.read_bytes()[:20_000]))
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in token) + '"' for token, _ in tokens.most_common(MAX_TOKENS)]
    file.write_text("\n".join(lines) + "\n", "ascii")


def fuzz_target(target: str, seconds: float, executions: int, seed: int, folder: Path) -> dict[str, float]:
    """Fuzz a target until its time or its executions are used up, and return its counts."""
    corpus, findings = folder / "corpus" / target, folder / "findings"
    for each in (corpus, findings, folder / "dictionaries"):
        each.mkdir(parents=True, exist_ok=True)
    dictionary = folder / "dictionaries" / target
    write_dictionary(target, dictionary)
    longest = MAX_ARCHIVE if target.startswith(ARCHIVES) else MAX_LENGTH
    counts = {"executions": 0.0, "seconds": 0.0, "findings": 0.0}
    while counts["seconds"] < seconds and counts["executions"] < executions and counts["findings"] < MAX_FINDINGS:
        command = [sys.executable, __file__, "--only-process", target]
        command += [f"-max_total_time={max(1, round(seconds - counts['seconds']))}", f"-seed={seed}"]
        command += [f"-runs={executions - round(counts['executions'])}", f"-max_len={longest}", "-timeout=30"]
        command += ["-rss_limit_mb=2048", "-print_final_stats=1", f"-dict={dictionary}"]
        command += [f"-artifact_prefix={findings / target}-", str(corpus), str(seed_folder(target))]
        began = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=environment, cwd=ROOT
        )
        text = done.stdout.decode("utf-8", "replace")
        counts["seconds"] += time.monotonic() - began
        units = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text)
        counts["executions"] += int(units[-1]) if units else 0
        written = re.findall(r"(?:Finding:|Test unit written to) (\S+)", text)[:1]
        if done.returncode == 0 and not written:
            break
        counts["findings"] += 1
        seed += 1
        place = Path(written[-1]) if written else findings / f"{target}-unknown-{seed}"
        place.with_name(f"{place.name}.txt").write_text(text[-20_000:], "utf-8")
        print(f"{target}: FINDING, see {place}.txt", flush=True)
        if not units and not written:
            break
    return counts


def main() -> int:
    if "--only-process" in sys.argv:
        place = sys.argv.index("--only-process")
        fuzz_one(sys.argv[place + 1], sys.argv[place + 2 :])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="for all targets together, on one core")
    parser.add_argument("--executions", type=int, default=10_000_000, help="of all targets together, at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="names of targets, or beginnings of them")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    chosen = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    from trust.fuzz.readers import TARGETS

    targets = [name for name in TARGETS if not chosen.only or name.startswith(tuple(chosen.only))]
    seconds = chosen.seconds * chosen.jobs / len(targets)
    executions = min(chosen.executions, EXCESS * chosen.executions // len(targets))
    report = chosen.folder / "counts.json"
    chosen.folder.mkdir(parents=True, exist_ok=True)
    totals = json.loads(report.read_text("utf-8")) if report.exists() else {}
    found = 0

    def work(target: str) -> None:
        nonlocal found
        counts = fuzz_target(target, seconds, executions, chosen.seed, chosen.folder.resolve())
        before = totals.get(target, {})
        totals[target] = {name: round(before.get(name, 0) + value, 1) for name, value in counts.items()}
        report.write_text(json.dumps(dict(sorted(totals.items())), indent=2) + "\n", "utf-8")
        found += int(counts["findings"])
        rate = counts["executions"] / max(counts["seconds"], 1e-9)
        print(
            f"{target}: {counts['executions']:,.0f} executions, {rate:,.0f} a second, "
            f"{counts['findings']:.0f} findings",
            flush=True,
        )

    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(work, targets))
    total = sum(each["executions"] for each in totals.values())
    print(f"{total:,.0f} executions in all runs so far, {found} findings in this one; counts in {report}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
