"""What an index setting means: 'exact', 'native', 'paper', 'auto', a faiss string, or for a GPU 'int8' and 'lists'."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.native import has_triton
from ibidem.retrieve.ivf.settings import NAME, NativeSettings, resolve_native, suits
from ibidem.retrieve.library import EXAMPLE, KEYS_PER_LIST, has_faiss, make_index, parameter_names
from ibidem.retrieve.partition import default_lists

if TYPE_CHECKING:
    import torch

EXACT_BELOW = 20_000
NATIVE_FROM = 10_000
LISTS_FROM = 8_000_000
LIST_DIMENSIONS = (32, 64, 128)
SQFP16_UP_TO = 128
FLAT_COARSE_UP_TO = 16_384
AUTO_RECALL = 0.97
DEFAULT_NPROBE = 32
PAPER_LISTS = 1024
PAPER_BYTES = 64
PQ_CENTROIDS = 256

_PARAMETERS = {
    "nprobe": "nprobe",
    "ef_search": "ef_search",
    "efSearch": "ef_search",
    "k_factor": "k_factor",
    "k_factor_rf": "k_factor",
}


@dataclass(frozen=True)
class ExactSettings:
    """Exact search; notes are messages for the user.

    coded: on a GPU, look at all keys as int8 codes first: exact but for what eight spare tiles cannot make up for.
    """

    notes: tuple[str, ...] = ()
    coded: bool = False


@dataclass(frozen=True)
class FaissSettings:
    """A faiss index: how it is built, how it is searched, and what the user should be told.

    nprobe: lists looked into; ef_search: breadth of a graph search; k_factor: candidates a neighbour for an
    index that refines; each None where it means nothing or faiss's own value is used.
    target_recall: raise nprobe after building until recall@16 reaches this.
    """

    factory: str
    nprobe: int | None = None
    ef_search: int | None = None
    k_factor: float | None = None
    target_recall: float | None = None
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class ListSettings:
    """An inverted file for a GPU: how many lists, and how many of them a query looks into.

    nprobe: None where as many are meant as reach the target recall; code_bytes: of product codes, None for the keys
    themselves.
    """

    lists: int
    nprobe: int | None = None
    code_bytes: int | None = None


def resolve(
    setting: str, size: int, dimension: int, *, device: str | torch.device = "cpu"
) -> ExactSettings | FaissSettings | ListSettings | NativeSettings:
    """Turn an index setting into settings for size keys of some dimensions, or say why it cannot be meant."""
    name = setting.strip()
    if name == "exact":
        return ExactSettings()
    on_cpu = str(device).startswith("cpu")
    if name == "auto":
        return _auto(size, dimension, on_cpu=on_cpu)
    if name == "paper":
        paper = _paper(size, dimension)
        return _check(setting, paper, size, dimension) if on_cpu else _paper_on_gpu(paper)
    if is_for_gpu(name):
        gpu = _lists(name, size) if name.startswith("lists") else _codes(name)
        note = f"The index setting {name!r} is for a GPU: on a CPU search is exact."
        return ExactSettings(notes=(note,)) if on_cpu else gpu
    if name.partition(";")[0].strip() == NAME:
        return resolve_native(name, size, dimension)
    return _check(setting, _parse(name), size, dimension)


def is_for_gpu(setting: str) -> bool:
    """Whether a setting names a search that a GPU has a form of its own for, made when it is opened."""
    return setting.partition(";")[0].strip() in ("int8", "lists", "paper")


def _check(setting: str, settings: FaissSettings, size: int, dimension: int) -> FaissSettings:
    """Refuse search parameters that mean nothing to an index, and fill in those that do."""
    index = make_index(settings.factory, size, dimension)
    understood = parameter_names(index)
    for parameter in ("nprobe", "ef_search", "k_factor"):
        if getattr(settings, parameter) is not None and parameter not in understood:
            raise UsageError(
                f"The index setting {setting!r} gives {parameter}, which means nothing to "
                f"{settings.factory!r}. Leave it out, or choose an index that has it, like {EXAMPLE!r}."
            )
    if "nprobe" in understood and settings.nprobe is None:
        note = f"nprobe was not given: {DEFAULT_NPROBE} lists are looked into (';nprobe=' changes it)."
        settings = replace(settings, nprobe=DEFAULT_NPROBE, notes=(*settings.notes, note))
    return settings


def _codes(setting: str) -> ExactSettings:
    """Read 'int8'."""
    if setting != "int8":
        raise UsageError(f"The index setting {setting!r} gives 'int8' a parameter, and it takes none. Use 'int8'.")
    return ExactSettings(coded=True)


def _lists(setting: str, size: int) -> ListSettings:
    """Read 'lists', or 'lists;nprobe=…;lists=…'."""
    numbers: dict[str, int] = {}
    for assignment in setting.split(";")[1:]:
        name, _, text = (part.strip() for part in assignment.partition("="))
        value = _number(text)
        if name not in ("lists", "nprobe") or value is None or value != int(value):
            raise UsageError(
                f"The index setting {setting!r} has {assignment!r}, which is no parameter of it. Use nprobe= or lists= "
                "with a whole number of at least 1, as in 'lists;nprobe=128'."
            )
        numbers[name] = int(value)
    return ListSettings(numbers.get("lists", default_lists(size)), numbers.get("nprobe"))


def _auto(size: int, dimension: int, *, on_cpu: bool) -> ExactSettings | FaissSettings | ListSettings | NativeSettings:
    """Choose exact search where it is fast enough, else the native index, else a faiss IVF with about 4 √N lists.

    A GPU reads millions of keys in the time of a step; above, compact keys are in lists, where kernels can search them.

    docs/results/search.md has the measurements, on compact keys of a real memory. At 10 k keys the native index is
    several times as fast as exact search. Short keys of faiss keep float16, in which the memory holds them: the recall
    that SQ8 loses is dearer to buy back by nprobe. Long keys take SQ8 at half the bytes (100 k drawn keys of 512
    dimensions: 0.981 and 0.985 at nprobe 64, about as fast).
    """
    if not on_cpu:
        listed = size >= LISTS_FROM and dimension in LIST_DIMENSIONS and has_triton()
        return ListSettings(default_lists(size)) if listed else ExactSettings()
    if suits(dimension) and size >= NATIVE_FROM:
        return resolve_native(NAME, size, dimension)
    if size < EXACT_BELOW:
        return ExactSettings()
    if not has_faiss():
        note = "faiss is not installed, so search is exact; `pip install faiss-cpu` makes it faster."
        return ExactSettings(notes=(note,))
    lists = min(2 ** round(math.log2(4 * math.sqrt(size))), _lists_that_fit(size))
    coarse = "" if lists <= FLAT_COARSE_UP_TO else "_HNSW32"
    codes = "SQfp16" if dimension <= SQFP16_UP_TO else "SQ8"
    return FaissSettings(
        factory=f"IVF{lists}{coarse},{codes}",
        nprobe=min(DEFAULT_NPROBE, lists),
        ef_search=4 * DEFAULT_NPROBE if coarse else None,
        target_recall=AUTO_RECALL,
    )


def _paper(size: int, dimension: int) -> FaissSettings:
    """Give the paper's index, IVF1024,PQ64 with nprobe 32, or the nearest that these keys allow."""
    if size < PQ_CENTROIDS:
        note = f"The paper's PQ codes need {PQ_CENTROIDS} keys and there are {size}: the index is flat (exact)."
        return FaissSettings("Flat", notes=(note,))
    notes = []
    code_bytes = max(n for n in range(1, min(PAPER_BYTES, dimension) + 1) if dimension % n == 0)
    if code_bytes != PAPER_BYTES:
        notes.append(
            f"The paper's codes have {PAPER_BYTES} bytes; {dimension} dimensions allow {code_bytes} "
            f"(the largest divisor up to {PAPER_BYTES})."
        )
    lists = min(PAPER_LISTS, _lists_that_fit(size))
    if lists != PAPER_LISTS:
        notes.append(
            f"The paper's index has {PAPER_LISTS} lists; {size} keys allow {lists} ({KEYS_PER_LIST} keys a list)."
        )
    return FaissSettings(f"IVF{lists},PQ{code_bytes}", nprobe=min(DEFAULT_NPROBE, lists), notes=tuple(notes))


def _paper_on_gpu(paper: FaissSettings) -> ExactSettings | ListSettings:
    """The same for a GPU: as many lists, codes and probes, without faiss."""
    if paper.nprobe is None:
        return ExactSettings(notes=paper.notes)
    lists, code_bytes = (int(part.lstrip("IVFPQ")) for part in paper.factory.split(","))
    return ListSettings(lists, paper.nprobe, code_bytes)


def _lists_that_fit(size: int) -> int:
    """Find the largest power of two that leaves each list enough keys to train on."""
    return 1 << max(0, (size // KEYS_PER_LIST).bit_length() - 1)


def _parse(setting: str) -> FaissSettings:
    """Read 'FACTORY;name=value;…'."""
    factory, *assignments = (part.strip() for part in setting.split(";"))
    if not factory:
        raise UsageError(
            f"The index setting {setting!r} names no index. Use 'auto', 'exact', 'native', 'paper', or a faiss factory "
            f"string like {EXAMPLE!r}."
        )
    numbers: dict[str, float] = {}
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        parameter = _PARAMETERS.get(name.strip())
        value = _number(text)
        if parameter is None or value is None or (parameter != "k_factor" and value != int(value)):
            raise UsageError(
                f"The index setting {setting!r} has {assignment!r}, which is no search parameter. Use "
                "nprobe= or ef_search= with a whole number, or k_factor= with a number, each at least 1, "
                f"as in {EXAMPLE!r}."
            )
        numbers[parameter] = value
    return FaissSettings(
        factory,
        nprobe=int(numbers["nprobe"]) if "nprobe" in numbers else None,
        ef_search=int(numbers["ef_search"]) if "ef_search" in numbers else None,
        k_factor=numbers.get("k_factor"),
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 1 <= value < 2**31 else None
