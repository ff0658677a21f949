"""The tables of translation quality: domains, limited training data, the large memory at its best, fine-tuning."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.learn import PAPER_SETTINGS
from ibidem.reproduce import paper
from ibidem.reproduce.grid import (
    NOT_RUN,
    Cell,
    Grid,
    format_count,
    format_number,
    format_spread,
    lay_out_grid,
    lay_out_pairs,
    markdown,
    spread_of,
)
from ibidem.reproduce.rows.translation import DefaultTranslation, FineTunedTranslation, Timing, Translation
from ibidem.reproduce.stages import DefaultMemory, FineTuned
from ibidem.reproduce.tables import Table, grid_table
from ibidem.reproduce.tables.compact import INDEX_NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ibidem.reproduce.plan import Plan, System
    from ibidem.reproduce.results import Result, Results
    from ibidem.reproduce.rows import Row

NMT, ADAPTIVE, CKMT, GENERAL = "NMT", "adaptive kNN-MT", "CKMT*", "G-CKMT*"
DEFAULT, TUNED, BOTH = "default memory", "fine-tuned", "fine-tuned, default memory"
LORA, LORA_BOTH = "LoRA", "LoRA, default memory"
DOMAIN_PAIRS = ((NMT, ADAPTIVE), (ADAPTIVE, CKMT), (CKMT, GENERAL), (ADAPTIVE, GENERAL))
TUNED_PAIRS = (
    *((NMT, label) for label in (ADAPTIVE, CKMT, DEFAULT, TUNED, BOTH, LORA)),
    *((label, TUNED) for label in (ADAPTIVE, CKMT, DEFAULT, LORA)),
    *((label, BOTH) for label in (DEFAULT, TUNED, LORA_BOTH)),
    (LORA, LORA_BOTH),
)
COLUMN = "BLEU"

# The two settings of cost clusters, which the paper calls "Ours".
AS_PRINTED, OUR_SETTINGS = "as printed", "our settings"
SETTINGS_NOTE = (
    "Cost clusters are the paper's pruning method (its tables call it Ours). As printed: groups of one token and costs "
    "of bigrams (Algorithm 1, section 4.3), with the log scale and epsilon 1.5 of the authors' code, since the paper "
    "gives no epsilon. Our settings: the defaults of this software for cost clusters, chosen on our dev set (n = 1, "
    "trigram groups, perplexity, automatic epsilon)."
)
PRINTED_NOTE = f"{SETTINGS_NOTE} The paper's numbers belong to the lines as printed."

# Systems with the large memory, as the paper's tables of it name them.
BASE, LARGE_ADAPTIVE, PCKMT = "base NMT", "adaptive", "PCKMT*"
OPTIMAL_BATCH = 64


def build_domains(plan: Plan, index: str) -> Grid:
    """Return four systems by the domains, with one kind of search.

    Args:
        plan: Gives the domains and seeds.
        index: "exact", or a setting of `ibidem index`.
    """

    def systems(label: str, domain: str) -> list[System]:
        if label == NMT:
            return [plan.base()]
        if label == ADAPTIVE:
            return [plan.adaptive(domain, seed, index=index) for seed in plan.seeds]
        corpus = plan.general if label == GENERAL else ()
        return [plan.ckmt(domain, seed, index=index, compact_corpus=corpus) for seed in plan.seeds]

    return grid_of_domains(plan, paper.DOMAINS, systems, DOMAIN_PAIRS)


def build_elsewhere(plan: Plan) -> Grid:
    """Return the same systems on text of other domains, with the memory of one domain and exact search.

    Args:
        plan: Gives the domain, the other test sets and the seeds.
    """

    def cell(label: str, test: str) -> Cell:
        if label == NMT:
            return Cell((Translation(plan.base(), test),))
        if label == ADAPTIVE:
            return Cell(tuple(Translation(plan.adaptive(plan.domain, seed), test) for seed in plan.seeds))
        corpus = plan.general if label == GENERAL else ()
        systems = [plan.ckmt(plan.domain, seed, compact_corpus=corpus) for seed in plan.seeds]
        return Cell(tuple(Translation(system, test) for system in systems))

    columns = {f"{test} ({plan.domain})": test for test in plan.elsewhere}
    lines = {label: {column: cell(label, test) for column, test in columns.items()} for label in paper.DOMAINS}
    return Grid(tuple(columns), lines, DOMAIN_PAIRS)


def grid_of_domains(
    plan: Plan,
    printed: Mapping[str, Mapping[str, float]],
    systems: Callable[[str, str], list[System]],
    pairs: tuple[tuple[str, str], ...],
) -> Grid:
    """Return a grid of the printed lines by the plan's domains.

    Args:
        plan: What is measured.
        printed: The paper's numbers by line and domain; a line that it has not is empty.
        systems: Returns one system for each seed of a line in a domain.
        pairs: Lines (baseline, system) to compare.
    """
    lines = {
        label: {
            domain: Cell(
                tuple(Translation(system, domain) for system in systems(label, domain)),
                printed[label].get(domain),
            )
            for domain in plan.domains
        }
        for label in printed
    }
    return Grid(plan.domains, lines, pairs)


def averages(grid: Grid, results: Results) -> dict[str, float | None]:
    """Return the mean of each line over the columns that every line with results was run in; None where there is none.

    Args:
        grid: Lines and columns.
        results: Results folder to read.
    """
    spreads = {label: {c: cell.spread(results) for c, cell in cells.items()} for label, cells in grid.lines.items()}
    run = [found for found in spreads.values() if any(spread is not None for spread in found.values())]
    shared = [column for column in grid.columns if run and all(found[column] is not None for found in run)]
    means: dict[str, float | None] = {}
    for label, found in spreads.items():
        spread = spread_of([here.mean for column in shared if (here := found[column]) is not None])
        means[label] = None if spread is None else spread.mean
    return means


def lay_out_domains(grid: Grid, results: Results, printed: Mapping[str, float]) -> str:
    """Lay out our scores by domain with their average, the paper's below each line, then the differences.

    Args:
        grid: Systems by domain.
        results: Results folder to read.
        printed: The paper's average of each line that it has.

    Returns:
        Markdown.
    """
    means = averages(grid, results)
    lines = []
    for label, cells in grid.lines.items():
        ours = [format_spread(cells[domain].spread(results)) for domain in grid.columns]
        lines.append([label, *ours, format_number(means[label]) or NOT_RUN])
        if label in printed:
            numbers = [cells[domain].paper for domain in grid.columns]
            lines.append(["— paper", *map(format_number, numbers), format_number(printed[label])])
    table = markdown(["system", *grid.columns, "avg."], lines)
    return f"{table}\n\n{lay_out_pairs(grid, results)}"


def _domain_rows(plan: Plan) -> list[Row]:
    own = [row for index in plan.indexes for row in build_domains(plan, index).rows]
    return [*own, *build_elsewhere(plan).rows]


def _lay_out_domains(plan: Plan, results: Results) -> str:
    parts = []
    for index in plan.indexes:
        parts.append(f"### {'Exact search' if index == 'exact' else f'The {index} index'}")
        parts.append(lay_out_domains(build_domains(plan, index), results, paper.DOMAINS_AVERAGE))
    parts.append("### Other text, exact search")
    parts.append(lay_out_grid(build_elsewhere(plan), results))
    parts.append("### chrF, exact search")
    parts += [lay_out_chrf(grid, results) for grid in (build_domains(plan, "exact"), build_elsewhere(plan))]
    parts.append(
        "Our averages are over the domains that every line was run in, the paper's over its four. Other text is "
        "translated with the memory of the domain in brackets; the paper has no such figures and no chrF. chrF has no "
        f"test, since its counts were not stored. {INDEX_NOTE}"
    )
    return "\n\n".join(parts)


def lay_out_chrf(grid: Grid, results: Results) -> str:
    """Lay out our chrF by line and column.

    Args:
        grid: Cells to lay out.
        results: Results folder to read.
    """
    lines = [
        [label, *(format_spread(spread_of(cells[column].values(results, _chrf))) for column in grid.columns)]
        for label, cells in grid.lines.items()
    ]
    return markdown(["system", *grid.columns], lines)


def _chrf(result: Result) -> float | None:
    found = result["scores"].get("chrF")
    return None if found is None else float(found)


def _domain_differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
    return [
        {"index": index, **difference}
        for index in plan.indexes
        for difference in build_domains(plan, index).differences(results)
    ] + [{"index": "exact", **difference} for difference in build_elsewhere(plan).differences(results)]


def build_limited_data(plan: Plan) -> Grid:
    """Return a line for each share of the entries, and adaptive kNN-MT to compare with.

    Args:
        plan: Gives the domain, shares and seeds.
    """
    printed = {share: bleu for share, (_, bleu) in paper.LIMITED_DATA.items()}
    lines = {}
    for share in plan.shares:
        compact = replace(plan.star, share=share)
        systems = [plan.ckmt(plan.domain, seed, compact=compact) for seed in plan.seeds]
        rows = tuple(Translation(system, plan.domain) for system in systems)
        lines[name_share(share)] = {COLUMN: Cell(rows, printed.get(share))}
    adaptive = tuple(Translation(plan.adaptive(plan.domain, seed), plan.domain) for seed in plan.seeds)
    whole = name_share(plan.shares[0])
    steps = [*pairwise(lines), *((whole, label) for label in lines if label != whole)]
    pairs = dict.fromkeys([*steps, *((ADAPTIVE, label) for label in lines)])
    lines[ADAPTIVE] = {COLUMN: Cell(adaptive, paper.COMPACT[ADAPTIVE])}
    return Grid((COLUMN,), lines, tuple(pairs))


def name_share(share: float) -> str:
    """Return the label of a share, such as 20 %.

    Args:
        share: Share of the entries, from 0 to 1.
    """
    return f"{share * 100:g} %"


def trained_entries(result: Result) -> float | None:
    """Return the number of entries that the compactor of a row was trained on.

    Args:
        result: Result of a row that translates.
    """
    entries = result.get("stages", {}).get("trained", {}).get("entries")
    return None if entries is None else float(entries)


def _lay_out_limited_data(plan: Plan, results: Results) -> str:
    grid = build_limited_data(plan)
    sizes = {name_share(share): size for share, (size, _) in paper.LIMITED_DATA.items()}
    lines = []
    for label, cells in grid.lines.items():
        cell = cells[COLUMN]
        entries = spread_of(cell.values(results, trained_entries))
        shown = "" if label == ADAPTIVE else NOT_RUN if entries is None else format_count(entries.mean)
        numbers = [format_spread(cell.spread(results)), format_number(cell.paper)]
        lines.append([label, shown, sizes.get(label, ""), *numbers])
    table = markdown(["share", "entries trained on", "paper", COLUMN, "paper"], lines)
    return f"{table}\n\n{lay_out_pairs(grid, results)}"


class Variant(NamedTuple):
    """A system with the large memory.

    Attributes:
        kind: "adaptive", "CKMT*" or "PCKMT*".
        k: Number of neighbours.
        rate: Pruning rate of PCKMT*, from 0 to 1.
        as_printed: Whether it is pruned with the paper's settings, not with our defaults.
    """

    kind: str
    k: int
    rate: float = 0.0
    as_printed: bool = False

    @property
    def label(self) -> str:
        """Return its label in tables."""
        pruned = f", {self.rate * 100:g} % pruned, {AS_PRINTED if self.as_printed else OUR_SETTINGS}"
        return f"{self.kind}, k = {self.k}{pruned if self.rate else ''}"

    def system(self, plan: Plan, seed: int) -> System:
        """Return its system for a seed.

        Args:
            plan: Gives the large memory and its test domain.
            seed: Seed of what is trained and pruned.
        """
        domain = plan.large_test
        if self.kind == LARGE_ADAPTIVE:
            return plan.on_large(plan.adaptive(domain, seed, k=self.k))
        if self.kind == CKMT:
            return plan.on_large(plan.ckmt(domain, seed, k=self.k))
        if self.as_printed:
            return plan.on_large(plan.ckmt(domain, seed, prune=replace(PAPER_SETTINGS, rate=self.rate), k=self.k))
        return plan.on_large(plan.pruned(domain, seed, self.rate, k=self.k))


def variants(plan: Plan) -> list[Variant]:
    """Return for every k adaptive kNN-MT, CKMT*, and PCKMT* with our settings at the rates of the paper's two tables.

    Args:
        plan: Gives the ks.
    """
    found: list[Variant] = []
    for k in sorted(plan.ks, reverse=True):
        rates = sorted({paper.LATENCY_RATES[k], optimal_rate(k)})
        found += [Variant(LARGE_ADAPTIVE, k), Variant(CKMT, k), *(Variant(PCKMT, k, rate) for rate in rates)]
    return found


def add_printed(found: list[Variant]) -> list[Variant]:
    """Return variants with PCKMT* as printed before each PCKMT* with our settings.

    Args:
        found: Variants with our settings.
    """
    return [
        variant
        for ours in found
        for variant in ((ours._replace(as_printed=True), ours) if ours.kind == PCKMT else (ours,))
    ]


def optimal_rate(k: int) -> float:
    """Return the pruning rate at which the paper's PCKMT* was best.

    Args:
        k: Number of neighbours, one of the paper's.
    """
    return paper.OPTIMAL[PCKMT, k][4]


def large_timing(plan: Plan, batch: int) -> Timing:
    """Return the row that times all systems with the large memory in turn, the base model first.

    Args:
        plan: Gives the systems, and the numbers of batches and rounds.
        batch: Sentences in a batch.
    """
    systems = (plan.base(), *(variant.system(plan, plan.seeds[0]) for variant in variants(plan)))
    return Timing(systems, plan.large_test, batch, plan.timed_batches, plan.rounds)


def large_speeds(plan: Plan, results: Results, batch: int) -> dict[str, dict[str, Any]]:
    """Return the speed and size of each system with the large memory, by label; empty where they were not run.

    Args:
        plan: Gives the systems.
        results: Results folder to read.
        batch: Sentences in a batch.
    """
    found = results.find(large_timing(plan, batch))
    labels = [BASE, *(variant.label for variant in variants(plan))]
    return {} if found is None else dict(zip(labels, found["speeds"], strict=True))


def optimal_variants(plan: Plan) -> list[Variant]:
    """Return the paper's lines for the plan's k, PCKMT* with our settings too, and adaptive kNN-MT for every k.

    Args:
        plan: Gives the ks.
    """
    return add_printed([v for v in variants(plan) if v.kind != PCKMT or v.rate == optimal_rate(v.k)])


def build_optimal(plan: Plan) -> Grid:
    """Return a line for each system; CKMT* is compared with adaptive kNN-MT, and PCKMT* with both.

    Args:
        plan: Gives the large memory, the ks and the seeds.
    """
    lines, pairs = {}, []
    for variant in optimal_variants(plan):
        rows = tuple(Translation(variant.system(plan, seed), plan.large_test) for seed in plan.seeds)
        lines[variant.label] = {COLUMN: Cell(rows, _printed_optimal(variant)[0])}
        adaptive, whole = Variant(LARGE_ADAPTIVE, variant.k).label, Variant(CKMT, variant.k).label
        pairs += [(other, variant.label) for other in (adaptive, whole) if other in lines and other != variant.label]
    return Grid((COLUMN,), lines, tuple(pairs))


def _printed_optimal(variant: Variant) -> tuple[Any, ...]:
    """Return the paper's BLEU, sentences/s, tokens/s, entries and rate; its PCKMT* is the line as printed."""
    own = variant.kind == PCKMT and not variant.as_printed
    return (None,) * 5 if own else paper.OPTIMAL.get((variant.kind, variant.k), (None,) * 5)


def _optimal_timing(plan: Plan) -> list[Row]:
    return [large_timing(plan, OPTIMAL_BATCH)]


def _lay_out_optimal(plan: Plan, results: Results) -> str:
    grid, timed = build_optimal(plan), large_speeds(plan, results, OPTIMAL_BATCH)
    lines = []
    for variant in optimal_variants(plan):
        cell = grid.lines[variant.label][COLUMN]
        found = cell.results(results)
        entries = format_count(found[0]["memory"]["entries"]) if found else NOT_RUN
        speed = f"{timed[variant.label]['tokens_per_second']:.0f}" if variant.label in timed else NOT_RUN
        _, _, tokens, size, _ = _printed_optimal(variant)
        quality = [format_spread(cell.spread(results)), format_number(cell.paper)]
        lines.append([variant.label, *quality, speed, format_number(tokens, 0), entries, format_number(size)])
    table = markdown(["system", COLUMN, "paper", "tokens/s", "paper", "entries", "paper"], lines)
    note = (
        f"Pruning rates are the paper's, not chosen on our test set. {PRINTED_NOTE} Batches of {OPTIMAL_BATCH}, timed "
        "as in `latency`."
    )
    return f"{table}\n\n{lay_out_pairs(grid, results)}\n\n{note}"


def build_fine_tuning(plan: Plan) -> Grid:
    """Return memories, fine-tuned models and both, adapted to one domain, on its test set and on others.

    Args:
        plan: Gives the domain, the other test sets and the seeds.
    """
    columns = tuple(dict.fromkeys((plan.domain, *plan.elsewhere)))
    seeds = plan.seeds

    def rows(test: str) -> dict[str, tuple[Row, ...]]:
        return {
            NMT: (Translation(plan.base(), test),),
            ADAPTIVE: tuple(Translation(plan.adaptive(plan.domain, seed), test) for seed in seeds),
            CKMT: tuple(Translation(plan.ckmt(plan.domain, seed), test) for seed in seeds),
            DEFAULT: tuple(DefaultTranslation(default_memory(plan, seed), test) for seed in seeds),
            TUNED: tuple(FineTunedTranslation(fine_tuned(plan, seed), test) for seed in seeds),
            BOTH: tuple(DefaultTranslation(default_memory(plan, seed, fine_tuned(plan, seed)), test) for seed in seeds),
            LORA: tuple(FineTunedTranslation(with_adapters(plan, seed), test) for seed in seeds),
            LORA_BOTH: tuple(
                DefaultTranslation(default_memory(plan, seed, with_adapters(plan, seed)), test) for seed in seeds
            ),
        }

    made = {test: rows(test) for test in columns}
    lines = {label: {test: Cell(made[test][label]) for test in columns} for label in made[plan.domain]}
    return Grid(columns, lines, TUNED_PAIRS)


def default_memory(plan: Plan, seed: int, model: FineTuned | None = None) -> DefaultMemory:
    """Return the memory of the defaults of `ibidem learn`.

    Args:
        plan: Gives the domain and the settings of the combiners.
        seed: Seed of the combiners.
        model: Fine-tuned model; None for the base model.
    """
    return DefaultMemory((plan.domain,), plan.domain, model, plan.metak, plan.contextual, seed=seed)


def fine_tuned(plan: Plan, seed: int) -> FineTuned:
    """Return the fine-tuned model of a seed.

    Args:
        plan: Gives the domain and the settings.
        seed: Seed of the training.
    """
    return FineTuned((plan.domain,), plan.domain, replace(plan.fine_tuning, seed=seed))


def with_adapters(plan: Plan, seed: int) -> FineTuned:
    """Return the model of a seed into which low-rank adapters were merged.

    Args:
        plan: Gives the domain and the settings.
        seed: Seed of the training.
    """
    return FineTuned((plan.domain,), plan.domain, replace(plan.lora, seed=seed))


def learning_seconds(result: Result) -> float | None:
    """Return the seconds of all stages of a row's system.

    Args:
        result: Result of a row that translates.

    Returns:
        None where the row has no stages.
    """
    stages = result.get("stages")
    return sum(notes["seconds"] for notes in stages.values()) if stages else None


def _lay_out_fine_tuning(plan: Plan, results: Results) -> str:
    grid = build_fine_tuning(plan)
    times = []
    for label in (ADAPTIVE, CKMT, DEFAULT, TUNED, BOTH, LORA, LORA_BOTH):
        spread = spread_of(grid.lines[label][plan.domain].values(results, learning_seconds))
        times.append(f"{label} {NOT_RUN if spread is None else f'{spread.mean / 60:.1f} minutes'}")
    note = (
        f"The memories and the fine-tuned models learn from the training text of {plan.domain} and are tuned on its "
        "dev set; other columns show what that does to other text. The default memory is that of `ibidem learn`, with "
        "8 neighbours; the other memories use 4. Fine-tuned: all weights. LoRA: adapters of all linear layers, rank "
        f"{plan.lora.lora_rank}, learning rate {plan.lora.learning_rate:g}, merged into the weights. Learning took: "
        f"{', '.join(times)} (side by side where the rows were; fine-tuning was given {plan.fine_tuning.updates:,} "
        "updates, and ends earlier when its dev loss no longer falls)."
    )
    return f"{lay_out_grid(grid, results)}\n\n{note}"


BY_NAME = {
    "domains": Table(
        "domains",
        "Adaptation in different domains, k = 4 (BLEU)",
        _domain_rows,
        _lay_out_domains,
        _domain_differences,
    ),
    "limited-data": grid_table(
        "limited-data",
        "CKMT* with the Compact Network trained on a share of the entries, drawn at random; IT, k = 4, exact search",
        build_limited_data,
        _lay_out_limited_data,
    ),
    "optimal": grid_table(
        "optimal",
        "CKMT* and PCKMT* on the large memory, exact search",
        build_optimal,
        _lay_out_optimal,
        more_rows=_optimal_timing,
    ),
    "fine-tuning": grid_table(
        "fine-tuning",
        "Memories, fine-tuning (all weights, LoRA) and both, in the domain and elsewhere (BLEU, exact search)",
        build_fine_tuning,
        _lay_out_fine_tuning,
    ),
}
