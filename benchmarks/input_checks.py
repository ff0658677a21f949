"""Measure which defects the check of parallel text finds, and how often it reports one in clean text.

    python benchmarks/input_checks.py DATA [--pairs 5000] [--sample 300] [--output FILE]
    python benchmarks/input_checks.py DATA --whole [--output FILE]

DATA has folders of German-English text, `SET/train.de.xz` and `SET/train.en.xz`. Of each set, consecutive pairs from a
seeded place are checked as they are, then with each defect put into 1 %, 10 % and 100 % of the pairs: random ones, or
for missing lines and orders the last ones. `found` is the share of the damaged pairs that the finding of the defect
counts, `wrong` the share of all other pairs with the same finding. For defects in the last pairs, both are shares of
the parts found.

With `--sample`, the base model scores pairs of the clean text, of text with exchanged sides, of random pairs, and of
its own translations of the sources (greedy), and the shares that its three findings report are measured.

`--whole` checks the whole training text of each set as `ibidem learn` does, with the dev set: every finding in it is a
false alarm, or a defect of the set itself.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.check import CheckReport, CheckSettings, TextCheck, check_sample, check_texts
from ibidem.check.alignment import Alignment
from ibidem.check.pair_rules import PairRules
from ibidem.check.text_check import Sampled
from ibidem.decode import SearchSettings, Translator
from ibidem.evaluate import describe_machine
from ibidem.text import Corpus, Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.model import BaseModel

SETS = ("it", "koran", "law", "games", "suttas")
SHARES = (0.01, 0.1, 1.0)
FRENCH = "Le texte de cette ligne n'est pas dans la langue que nous avons choisie pour le fichier."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--sample", type=int, default=0, help="pairs that the model scores; 0: texts only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--whole", action="store_true", help="check whole sets as they are")
    arguments = parser.parse_args()
    if arguments.whole:
        whole = {name: check_whole(arguments.data / name) for name in (*SETS, "general")}
        print(json.dumps(whole, indent=1, ensure_ascii=False))
        if arguments.output:
            write(arguments.output, f"--whole --seed {arguments.seed}", {"whole": whole})
        return
    rows: dict[str, Any] = {}
    for name in SETS:
        pairs = read_pairs(arguments.data / name, arguments.pairs, arguments.seed)
        rows[name] = measure_texts(pairs, arguments.seed)
        print(name, json.dumps(rows[name]), flush=True)
    likelihood: dict[str, Any] = {}
    if arguments.sample:
        from ibidem.model import load_model

        model = load_model(device="cpu", dtype="auto")
        for name in SETS:
            pairs = read_pairs(arguments.data / name, arguments.pairs, arguments.seed)
            likelihood[name] = measure_model(model, pairs, arguments.sample, arguments.seed)
            print(name, json.dumps(likelihood[name]), flush=True)
    if arguments.output:
        options = f"--pairs {arguments.pairs} --sample {arguments.sample} --seed {arguments.seed}"
        result = {"texts": rows, "summary": summarize(rows), "likelihood": likelihood}
        write(arguments.output, options, result)


def write(path: Path, options: str, result: dict[str, Any]) -> None:
    """Write results with their provenance."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    provenance = {
        "command": f"python benchmarks/input_checks.py DATA {options} --output FILE",
        "commit": commit.stdout.strip(),
        "seed": options.rpartition(" ")[2],
        "signature": "no BLEU",
        "machine": describe_machine(),
    }
    path.write_text(json.dumps({"provenance": provenance, **result}, indent=1, ensure_ascii=False) + "\n", "utf-8")


def check_whole(folder: Path) -> dict[str, Any]:
    """Check the training text of a set with the settings of `ibidem learn`."""
    dev = [folder / f"dev.{language}.xz" for language in ("de", "en")]
    held_out = list(Corpus(dev)) if dev[0].exists() else []
    started = time.process_time()
    report, _ = check_texts(Corpus([folder / "train.de.xz", folder / "train.en.xz"]), held_out=held_out)
    return {
        "pairs": report.read,
        "verdict": report.verdict,
        "complete": report.complete,
        "seconds": round(time.process_time() - started, 1),
        "findings": {
            one.name: {
                "count": one.count,
                "percent": round(100 * one.count / one.judged, 2),
                "action": one.action.value,
            }
            for one in report.findings
        },
    }


def read_pairs(folder: Path, count: int, seed: int) -> list[Pair]:
    """Read consecutive pairs from a seeded place of the training text of a set."""
    sides = []
    for language in ("de", "en"):
        with lzma.open(folder / f"train.{language}.xz", "rt", encoding="utf-8") as file:
            sides.append(file.read().split("\n")[:-1])
    first = random.Random(seed).randrange(max(1, len(sides[0]) - count))
    rows = zip(sides[0][first : first + count], sides[1][first : first + count], strict=True)
    return [Pair(*row, "train", number) for number, row in enumerate(rows)]


def exchange(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, source=pair.target, target=pair.source)


def copy(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, target=pair.source)


def foreign(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, target=FRENCH)


def damage_encoding(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, source=pair.source.encode().decode("cp1252", "replace"))


def cut(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, target=pair.target[: len(pair.target) // 6])


def mark(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, target=f"<p>{pair.target}&nbsp;</p>")


def quote(pair: Pair, _: random.Random) -> Pair:
    return replace(pair, target='"""' + pair.target.replace('"', '""') + '"""')


def number(pair: Pair, draw: random.Random) -> Pair:
    date = f"{draw.randrange(1, 29)}.{draw.randrange(1, 13)}.{draw.randrange(1990, 2030)}"
    return replace(pair, source=date, target=date)


PAIR_DEFECTS: dict[str, tuple[str, Callable[[Pair, random.Random], Pair]]] = {
    "exchanged sides": ("swapped", exchange),
    "target is the source": ("untranslated", copy),
    "target in French": ("wrong language", foreign),
    "UTF-8 read as Windows-1252": ("mojibake", damage_encoding),
    "target cut to a sixth": ("length", cut),
    "tags in the target": ("markup", mark),
    "doubled CSV quotes": ("csv quotes", quote),
    "dates": ("no words", number),
}


def measure_texts(pairs: list[Pair], seed: int) -> dict[str, Any]:
    """Check clean and damaged text; see the module."""
    started = time.process_time()
    check = TextCheck(("de", "en"), CheckSettings(dense_pairs=len(pairs)))
    for pair in pairs:
        check.add(pair)
    clean = check.findings()
    found: dict[str, Any] = {
        "pairs": len(pairs),
        "microseconds": round((time.process_time() - started) / len(pairs) * 1e6),
        "clean": {one.name: {"share": one.count / len(pairs), "action": one.action.value} for one in clean},
    }
    rules = PairRules("de", "en")
    for name, (finding, damage) in PAIR_DEFECTS.items():
        found[name] = {}
        for share in SHARES:
            draw = random.Random(seed)
            damaged = set(draw.sample(range(len(pairs)), round(share * len(pairs))))
            changed = [damage(pair, draw) if row in damaged else pair for row, pair in enumerate(pairs)]
            # Only pairs that the damage changes can be found.
            really = {row for row in damaged if changed[row] != pairs[row]}
            hit = {
                row for row, pair in enumerate(changed) if any(kind.name == finding for kind in rules.judge(pair).kinds)
            }
            found[name][f"{share:g}"] = {
                "found": round(len(hit & really) / max(len(really), 1), 4),
                "wrong": round(len(hit - damaged) / max(len(pairs) - len(damaged), 1), 4),
                "verdict": verdict(changed, finding),
            }
    for name in ("missing target line", "random order"):
        found[name] = {}
        for share in SHARES:
            first = len(pairs) - round(share * len(pairs))
            targets = [pair.target for pair in pairs]
            if name == "missing target line":
                targets = [*targets[:first], *targets[first + 1 :], "end"]
            else:
                rest = targets[first:]
                random.Random(seed).shuffle(rest)
                targets = targets[:first] + rest
            changed = [replace(pair, target=target) for pair, target in zip(pairs, targets, strict=True)]
            alignment = Alignment()
            for pair in changed:
                alignment.add(pair)
            hit = {
                row
                for part in alignment.find_parts()
                if (part.offset is None) == (name == "random order")
                for row in range(part.first, part.last + 1)
            }
            damaged = set(range(first, len(pairs)))
            finding = "unrelated" if name == "random order" else "shifted"
            found[name][f"{share:g}"] = {
                "found": round(len(hit & damaged) / len(damaged), 4),
                "wrong": round(len(hit - damaged) / max(first, 1), 4),
                "verdict": verdict(changed, finding),
            }
    return found


def verdict(pairs: list[Pair], finding: str) -> str:
    """Return what `learn` does because of one finding: "refuse", "warn", "note" or "nothing"."""
    check = TextCheck(("de", "en"), CheckSettings(dense_pairs=len(pairs)))
    for pair in pairs:
        check.add(pair)
    return next((one.action.value for one in check.findings() if one.name == finding), "nothing")


def summarize(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the least and the mean share found over the sets, and the largest share of wrong findings, in percent."""
    summary: dict[str, Any] = {}
    for name in (*PAIR_DEFECTS, "missing target line", "random order"):
        for share in SHARES:
            cells = [row[name][f"{share:g}"] for row in rows.values()]
            actions = sorted({str(cell["verdict"]) for cell in cells})
            summary[f"{name} {share:g}"] = {
                "mean found": round(100 * sum(cell["found"] for cell in cells) / len(cells), 1),
                "least found": round(100 * min(cell["found"] for cell in cells), 1),
                "most wrong": round(100 * max(cell["wrong"] for cell in cells), 2),
                "actions": "/".join(actions),
            }
    return summary


def measure_model(model: BaseModel, pairs: list[Pair], count: int, seed: int) -> dict[str, Any]:
    """Return what the model reports of clean, exchanged, random and machine-translated pairs."""
    drawn = random.Random(seed).sample(pairs, count)
    translator = Translator(model, settings=SearchSettings(beam=1))
    few = drawn[: count // 3]
    machine = translator.translate([pair.source for pair in few])
    texts = {
        "clean": drawn,
        "exchanged sides": [exchange(pair, random.Random()) for pair in few],
        "random pairs": [
            replace(pair, target=other.target) for pair, other in zip(few, few[7:] + few[:7], strict=True)
        ],
        "machine translation": [replace(pair, target=target) for pair, target in zip(few, machine, strict=True)],
    }
    found = {}
    for name, part in texts.items():
        report = CheckReport(name, len(part), len(part), True, [])
        started = time.process_time()
        check_sample(report, [Sampled(row, pair) for row, pair in enumerate(part)], model, seconds=600)
        sample = report.sample
        found[name] = {
            "pairs": sample["pairs"],
            "misaligned": round(100 * sample["misaligned"] / sample["pairs"], 1),
            "swapped": round(100 * sample["swapped"] / sample["pairs"], 1),
            "most probable": round(100 * sample["most_probable"] / max(sample["most_probable_of"], 1), 1),
            "verdict": report.verdict,
            "seconds": round(time.process_time() - started, 1),
        }
    return found


if __name__ == "__main__":
    main()
