"""Index settings: 'auto', 'exact', 'native', 'paper', a faiss factory string, or 'int8' and 'lists' for a GPU.

A setting is a name with parameters, as in 'native;nprobe=64'. `resolve` turns it into a settings object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.native import MOST_DIMENSIONS, has_triton, native
from ibidem.retrieve.faiss_library import EXAMPLE, KEYS_PER_LIST, has_faiss, make_index, parameter_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


NATIVE = "native"

# Where 'auto' changes from one kind of index to another, by the number of keys.
EXACT_BELOW = 20_000
NATIVE_FROM = 10_000
LISTS_FROM = 8_000_000
LIST_DIMENSIONS = (32, 64, 128)

# faiss: key types, coarse quantisers, recall and nprobe.
SQFP16_UP_TO = 128
FLAT_COARSE_UP_TO = 16_384
FAISS_RECALL = 0.97
DEFAULT_NPROBE = 32

# The index of the paper: IVF1024,PQ64.
PAPER_LISTS = 1024
PAPER_BYTES = 64
PQ_CENTROIDS = 256

# The native index.
NATIVE_RECALL = 0.98
NATIVE_NPROBE, NATIVE_RERANK = 64, 72
# A list needs this many keys, so that its last, partly empty block of 16 is a small part of it.
_NATIVE_KEYS_PER_LIST = 48
# A search compares a query with the centre of every region, of which there is one for about 170 lists.
_NATIVE_MOST_LISTS = 1 << 20
# The prune ratio grows with this root of nprobe.
_PRUNE_ROOT = 10
# Candidates for each neighbour, at least. A key is stored in two lists and can be a candidate twice, so k neighbours
# need 2k candidates; as many again make up for the error of the 2-bit codes.
LEAST_CANDIDATES = 4

# The inverted file on a GPU.
_GPU_KEYS_PER_LIST = 512
_GPU_MOST_LISTS = 16_384

# Accepted parameters and the fields they set.
_FAISS_PARAMETERS = {
    "nprobe": "nprobe",
    "ef_search": "ef_search",
    "efSearch": "ef_search",
    "k_factor": "k_factor",
    "k_factor_rf": "k_factor",
}
_LIST_PARAMETERS = {"nprobe": "nprobe", "lists": "lists"}
_NATIVE_PARAMETERS = {
    "nprobe": "nprobe",
    "rerank": "rerank",
    "lists": "lists",
    "prune_ratio": "prune_ratio",
}
_REAL_PARAMETERS = ("k_factor", "prune_ratio")


@dataclass(frozen=True)
class ExactSettings:
    """Exact search.

    Attributes:
        notes: messages for the user.
        coded: on a GPU, scan int8 codes of all keys first; a few spare tiles make up for most of their error.
    """

    notes: tuple[str, ...] = ()
    coded: bool = False


@dataclass(frozen=True)
class FaissSettings:
    """A faiss index: how it is built and searched.

    Attributes:
        factory: the faiss factory string.
        nprobe: lists searched for each query; None where the index has no lists.
        ef_search: breadth of a graph search; None for the default of faiss.
        k_factor: candidates for each neighbour of an index that refines; None for the default of faiss.
        target_recall: after building, raise nprobe until recall@16 reaches this.
        notes: messages for the user.
    """

    factory: str
    nprobe: int | None = None
    ef_search: int | None = None
    k_factor: float | None = None
    target_recall: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListSettings:
    """An inverted file on a GPU.

    Attributes:
        lists: the number of lists.
        nprobe: lists searched for each query; None for as many as the target recall needs.
        code_bytes: bytes of the product code of a key; None to search the keys themselves.
    """

    lists: int
    nprobe: int | None = None
    code_bytes: int | None = None


@dataclass(frozen=True)
class NativeSettings:
    """The native index: how it is built and searched.

    Attributes:
        lists: the number of lists.
        nprobe: about the most lists searched for each query.
        prune_ratio: a list is skipped if its centroid is farther than this times the worst candidate
            (squared distances); a block of keys is skipped by a smaller ratio.
        rerank: candidates that are reranked by their exact distance, for 16 neighbours.
        target_recall: after building, search wider until recall@16 reaches this.
        notes: messages for the user.
    """

    lists: int
    nprobe: int
    prune_ratio: float
    rerank: int = NATIVE_RERANK
    target_recall: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> int:
        """The most groups of centroids examined for each query; they hold about 13 times nprobe lists."""
        return max(32, self.nprobe)

    @property
    def block_prune_ratio(self) -> float:
        """The prune ratio of blocks, which are tighter than their lists."""
        return max(1.0, 0.85 * self.prune_ratio)

    def rerank_for(self, k: int) -> int:
        """Return how many candidates are reranked for k neighbours.

        Args:
            k: neighbours for each query.
        """
        return max(LEAST_CANDIDATES * k, self.rerank * (16 + k) // 32)

    @property
    def reduced(self) -> NativeSettings:
        """Settings that search a quarter of the lists, for queries whose neighbours matter less."""
        nprobe = max(1, self.nprobe // 4)
        ratio = max(1.0, self.prune_ratio * math.pow(nprobe / self.nprobe, 1 / _PRUNE_ROOT))
        return replace(self, nprobe=nprobe, prune_ratio=ratio)

    def wider(self) -> NativeSettings:
        """Return settings that search about a tenth more lists, with the prune ratio that belongs to them."""
        nprobe = min(self.lists, max(self.nprobe + 1, round(self.nprobe * 2**0.125)))
        return replace(self, nprobe=nprobe, prune_ratio=self.prune_ratio * math.pow(2, 0.125 / _PRUNE_ROOT))


IndexSettings = ExactSettings | FaissSettings | ListSettings | NativeSettings


def resolve(setting: str, size: int, dimension: int, *, device: str | torch.device = "cpu") -> IndexSettings:
    """Turn an index setting into a settings object.

    Args:
        setting: 'auto', 'exact', 'native', 'paper', 'int8', 'lists' or a faiss factory string, with parameters.
        size: the number of keys.
        dimension: the number of components of a key.
        device: where the index is searched.

    Returns:
        The settings of an exact, native, faiss or GPU index.

    Raises:
        UsageError: The setting is invalid for these keys.

    Examples:
        >>> resolve("IVF16,SQ8;nprobe=5", size=1000, dimension=64).nprobe
        5
    """
    name = setting.strip()
    if name == "exact":
        return ExactSettings()
    on_cpu = str(device).startswith("cpu")
    if name == "auto":
        return _choose_for_cpu(size, dimension) if on_cpu else _choose_for_gpu(size, dimension)
    if name == "paper":
        paper = _paper(size, dimension)
        return _check_faiss(setting, paper, size, dimension) if on_cpu else _paper_on_gpu(paper)
    if is_for_gpu(name):
        gpu = _read_lists(name, size) if name.startswith("lists") else _read_int8(name)
        note = f"The index setting {name!r} is for a GPU: on a CPU search is exact."
        return ExactSettings(notes=(note,)) if on_cpu else gpu
    if name.partition(";")[0].strip() == NATIVE:
        return _read_native(name, size, dimension)
    return _check_faiss(setting, _read_faiss(name), size, dimension)


def is_for_gpu(setting: str) -> bool:
    """Return whether a setting has a form of its own on a GPU, which is built when a memory is opened.

    Args:
        setting: an index setting, see `resolve`.

    Returns:
        True for 'int8', 'lists' and 'paper', with or without parameters.

    Examples:
        >>> is_for_gpu("lists;nprobe=8"), is_for_gpu("native")
        (True, False)
    """
    return setting.partition(";")[0].strip() in ("int8", "lists", "paper")


def prune_ratio_for(nprobe: int) -> float:
    """Return the prune ratio that belongs to nprobe: along this curve a given recall costs least.

    Args:
        nprobe: lists searched for each query.

    Returns:
        A ratio of squared distances, at least 1.
    """
    return max(1.0, 1.18 * math.pow(nprobe / NATIVE_NPROBE, 1 / _PRUNE_ROOT))


def native_lists(size: int) -> int:
    """Return the number of lists of a native index: about 16 √size, a power of two, with enough keys in each list.

    The neighbours of a query lie in about as many lists whatever their number, so many short lists are less to read
    than a few long ones.

    Args:
        size: the number of keys.
    """
    wanted = 1 << round(math.log2(16 * math.sqrt(max(1, size))))
    return min(wanted, _power_of_two_below(size // _NATIVE_KEYS_PER_LIST), _NATIVE_MOST_LISTS)


def gpu_lists(size: int) -> int:
    """Return the number of lists on a GPU: about one for 512 keys, a power of two.

    Args:
        size: the number of keys.
    """
    return min(_GPU_MOST_LISTS, _power_of_two_below(round(size / _GPU_KEYS_PER_LIST)))


def _choose_for_gpu(size: int, dimension: int) -> IndexSettings:
    """Choose an inverted file for very many compact keys where kernels can search it, else exact search."""
    listed = size >= LISTS_FROM and dimension in LIST_DIMENSIONS and has_triton()
    return ListSettings(gpu_lists(size)) if listed else ExactSettings()


def _choose_for_cpu(size: int, dimension: int) -> IndexSettings:
    """Choose exact search where it is fast enough, else the native index, else a faiss IVF with about 4 √size lists.

    docs/results/search.md has the measurements behind these choices.
    """
    if _takes_dimension(dimension) and native() is not None and size >= NATIVE_FROM:
        return _read_native(NATIVE, size, dimension)
    if size < EXACT_BELOW:
        return ExactSettings()
    if not has_faiss():
        note = "faiss is not installed, so search is exact; `pip install faiss-cpu` makes it faster."
        return ExactSettings(notes=(note,))
    lists = min(2 ** round(math.log2(4 * math.sqrt(size))), _power_of_two_below(size // KEYS_PER_LIST))
    coarse = "" if lists <= FLAT_COARSE_UP_TO else "_HNSW32"
    # Memories hold float16. For short keys a higher nprobe costs more than the recall that SQ8 loses.
    codes = "SQfp16" if dimension <= SQFP16_UP_TO else "SQ8"
    return FaissSettings(
        factory=f"IVF{lists}{coarse},{codes}",
        nprobe=min(DEFAULT_NPROBE, lists),
        ef_search=4 * DEFAULT_NPROBE if coarse else None,
        target_recall=FAISS_RECALL,
    )


def _paper(size: int, dimension: int) -> FaissSettings:
    """Return the index of the paper, IVF1024,PQ64 with nprobe 32, or the nearest that these keys allow."""
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
    lists = min(PAPER_LISTS, _power_of_two_below(size // KEYS_PER_LIST))
    if lists != PAPER_LISTS:
        notes.append(
            f"The paper's index has {PAPER_LISTS} lists; {size} keys allow {lists} ({KEYS_PER_LIST} keys a list)."
        )
    return FaissSettings(f"IVF{lists},PQ{code_bytes}", nprobe=min(DEFAULT_NPROBE, lists), notes=tuple(notes))


def _paper_on_gpu(paper: FaissSettings) -> ExactSettings | ListSettings:
    """Return the same index for a GPU, without faiss."""
    if paper.nprobe is None:
        return ExactSettings(notes=paper.notes)
    lists, code_bytes = (int(part.lstrip("IVFPQ")) for part in paper.factory.split(","))
    return ListSettings(lists, paper.nprobe, code_bytes)


def _read_int8(setting: str) -> ExactSettings:
    if setting != "int8":
        raise UsageError(f"The index setting {setting!r} gives 'int8' a parameter, and it takes none. Use 'int8'.")
    return ExactSettings(coded=True)


def _read_lists(setting: str, size: int) -> ListSettings:
    given = _read_parameters(setting, _LIST_PARAMETERS, "lists;nprobe=128")
    nprobe = given.get("nprobe")
    return ListSettings(int(given.get("lists", gpu_lists(size))), None if nprobe is None else int(nprobe))


def _read_native(setting: str, size: int, dimension: int) -> NativeSettings:
    if native() is None:
        raise UsageError(
            f"The index setting {setting!r} needs ibidem's native library, which was not built here or does not run on "
            "this CPU. Use 'auto'."
        )
    if not _takes_dimension(dimension):
        raise UsageError(
            f"The native index takes keys of 4, 8, … {MOST_DIMENSIONS} dimensions, not of {dimension}. Use 'auto'."
        )
    given = _read_parameters(setting, _NATIVE_PARAMETERS, "native;nprobe=64")
    lists = int(given.get("lists", native_lists(size)))
    if size and lists > size:
        raise UsageError(f"The index {setting!r} has {lists} lists, but there are {size} keys. Leave 'lists=' out.")
    nprobe = int(given.get("nprobe", NATIVE_NPROBE))
    return NativeSettings(
        lists=lists,
        nprobe=nprobe,
        prune_ratio=given.get("prune_ratio", prune_ratio_for(nprobe)),
        rerank=int(given.get("rerank", NATIVE_RERANK)),
        target_recall=None if given.keys() & {"nprobe", "prune_ratio", "rerank"} else NATIVE_RECALL,
    )


def _read_faiss(setting: str) -> FaissSettings:
    factory = setting.partition(";")[0].strip()
    if not factory:
        raise UsageError(
            f"The index setting {setting!r} names no index. Use 'auto', 'exact', 'native', 'paper', or a faiss factory "
            f"string like {EXAMPLE!r}."
        )
    given = _read_parameters(setting, _FAISS_PARAMETERS, EXAMPLE)
    return FaissSettings(
        factory,
        nprobe=int(given["nprobe"]) if "nprobe" in given else None,
        ef_search=int(given["ef_search"]) if "ef_search" in given else None,
        k_factor=given.get("k_factor"),
    )


def _check_faiss(setting: str, settings: FaissSettings, size: int, dimension: int) -> FaissSettings:
    """Reject search parameters that an index does not have, and set nprobe where it is missing."""
    index = make_index(settings.factory, size, dimension)
    supported = parameter_names(index)
    for parameter in ("nprobe", "ef_search", "k_factor"):
        if getattr(settings, parameter) is not None and parameter not in supported:
            raise UsageError(
                f"The index setting {setting!r} gives {parameter}, which {settings.factory!r} does not have. "
                f"Leave it out, or choose an index that has it, like {EXAMPLE!r}."
            )
    if "nprobe" in supported and settings.nprobe is None:
        note = f"nprobe was not given: {DEFAULT_NPROBE} lists are searched (';nprobe=' changes it)."
        settings = replace(settings, nprobe=DEFAULT_NPROBE, notes=(*settings.notes, note))
    return settings


def _read_parameters(setting: str, known: Mapping[str, str], example: str) -> dict[str, float]:
    """Read the parameters of 'name;parameter=value;…', each at least 1, by the fields that they set."""
    values: dict[str, float] = {}
    for assignment in setting.split(";")[1:]:
        name, _, text = (part.strip() for part in assignment.partition("="))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        field = known.get(name)
        if field is None or not 1 <= value < 2**31 or (field not in _REAL_PARAMETERS and value != int(value)):
            raise UsageError(
                f"Invalid parameter {assignment.strip()!r} in the index setting {setting!r}. "
                f"Use {_list_parameters(known)}, each at least 1, as in {example!r}."
            )
        values[field] = value
    return values


def _list_parameters(known: Mapping[str, str]) -> str:
    fields = dict.fromkeys(known.values())
    whole = ", ".join(f"{field}=" for field in fields if field not in _REAL_PARAMETERS)
    real = ", ".join(f"{field}=" for field in fields if field in _REAL_PARAMETERS)
    return f"{whole} with a whole number" + (f" or {real} with a number" if real else "")


def _takes_dimension(dimension: int) -> bool:
    """Return whether the native index takes keys of this many dimensions."""
    return dimension % 4 == 0 and 4 <= dimension <= MOST_DIMENSIONS


def _power_of_two_below(number: int) -> int:
    """Return the largest power of two that is at most a number, and at least 1."""
    return 1 << max(0, number.bit_length() - 1)
