"""A table as files: TABLE.md for people, TABLE.json with every result behind it, figures beside them."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ibidem.reproduce.declaration import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Result, Results
    from ibidem.reproduce.tables.table import Table

SMOKE = (
    "**SMOKE**: a quick run to see that everything works, on few sentences with hardly any training. "
    "No figure here means anything."
)


def write_table(table: Table, plan: Plan, results: Results, obstacles: Mapping[str, str], folder: Path) -> str:
    """Write a table's files into a folder and return its Markdown; `obstacles` say by digest why rows cannot run."""
    rows = table.rows(plan)
    found = {digest(row): results.find(row) for row in rows}
    present = [result for result in found.values() if result is not None]
    missing = [key for key, result in found.items() if result is None]
    figures = table.draw(plan, results, folder / "figures") if find_spec("matplotlib") else []
    parts = [f"# {table.name}", table.title + "."]
    if plan.smoke:
        parts.insert(1, SMOKE)
    parts.append(table.lay_out(plan, results))
    parts += [f"![{file.stem}](figures/{file.name})" for file in figures if file.suffix == ".png"]
    parts.append(describe_runs(present, len(found), [obstacles[key] for key in missing if key in obstacles]))
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{table.name}.md").write_text(text, encoding="utf-8", newline="\n")
    whole = {
        "table": table.name,
        "title": table.title,
        "smoke": plan.smoke,
        "rows": len(found),
        "differences": table.differences(plan, results),
        "results": present,
    }
    content = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / f"{table.name}.json").write_text(content, encoding="utf-8", newline="\n")
    return text


def describe_runs(present: Sequence[Result], rows: int, obstacles: Sequence[str]) -> str:
    """What the figures of a table were measured with: model, seeds, signatures, machines, software, time."""
    lines = [f"{len(present)} of {rows} rows run."] if rows else []
    if obstacles:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in Counter(obstacles).most_common())
        lines.append(f"Cannot be run here: {reasons}.")
    if present:
        seconds = sum(result["seconds"] for result in present)
        facts = {
            "base model": _distinct(f"{r['model']['name']} ({r['model']['dimension']}-d keys)" for r in present),
            "seeds": _distinct(result["seed"] for result in present),
            "BLEU": _distinct(result.get("signatures", {}).get("BLEU") for result in present),
            "machine": _distinct(_machine_of(result["machine"]) for result in present),
            "software": _distinct(_software_of(result) for result in present),
            "commit": _distinct((result["commit"] or "unknown")[:12] for result in present),
            "run": f"{min(r['when'] for r in present)} to {max(r['when'] for r in present)}",
            "time": f"measuring {seconds / 60:.1f} minutes, stages {_stage_seconds(present) / 60:.1f} minutes; "
            f"{_side_by_side(present)}",
        }
        lines += [f"- {name}: {value}" for name, value in facts.items() if value]
    if any("scores" in result for result in present):
        lines.append("")
        lines.append(
            "± is the standard deviation over seeds; p by paired bootstrap over sentences, on means over seeds."
        )
    return "\n".join(lines)


def _distinct(values: Any) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values if value))


def _machine_of(machine: Mapping[str, Any]) -> str:
    words = [machine.get("gpu"), machine.get("cpu"), f"{machine.get('cores')} cores"]
    return ", ".join(str(word) for word in words if word)


def _software_of(result: Result) -> str:
    machine = result["machine"]
    libraries = [
        f"{name} {machine[name]}" for name in ("torch", "transformers", "faiss", "sacrebleu") if name in machine
    ]
    return ", ".join([f"ibidem {result['ibidem']}", *libraries])


def _stage_seconds(present: Sequence[Result]) -> float:
    """The seconds of all stages; rows that share one tell the same time of it."""
    stages = {(kind, notes["seconds"]) for result in present for kind, notes in result.get("stages", {}).items()}
    return float(sum(seconds for _, seconds in stages))


def _side_by_side(present: Sequence[Result]) -> str:
    most = max(result["side_by_side"] for result in present)
    return "one at a time" if most == 1 else f"up to {most} side by side, so that no speed can be read off them"
