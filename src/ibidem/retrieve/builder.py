"""Build the index of a setting, the same for the same seed."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.faiss_index import build_faiss
from ibidem.retrieve.gpu.lists import ListIndex
from ibidem.retrieve.gpu.scan import ScanIndex
from ibidem.retrieve.index_settings import ExactSettings, ListSettings, NativeSettings, resolve
from ibidem.retrieve.ivf.builder import build_native
from ibidem.retrieve.keys import check_device, fits_as_float16
from ibidem.retrieve.recall import draw_probe, recall_at

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from ibidem.retrieve.faiss_index import Progress
    from ibidem.retrieve.index import Index
    from ibidem.retrieve.keys import Keys

RECALL_SAMPLES = 256
INT8_RECALL = 0.99
LIST_RECALL = 0.99

# Copies of the float16 keys that must fit on a GPU while an index is built.
_INT8_COPIES = 2
_LIST_COPIES = 4
_LIST_NPROBE = 32
# Probing more than one list in this many costs as much as probing all.
_LEAST_SAVING = 4


def build_index(
    keys: Keys,
    setting: str,
    *,
    seed: int,
    threads: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> Index:
    """Build the index of a setting over all keys.

    The recall@16 of an approximate index is measured against exact search, on a sample of queries.

    Args:
        keys: the keys.
        setting: an index setting, see `resolve`.
        seed: of training and sampling.
        threads: the most threads for building and searching on the CPU; None for as many as torch uses.
        device: where exact search and the inverted file of a GPU run.
        progress: called with a stage ('train', 'add' or 'measure'), the keys done and the keys in total.
        scratch: a folder for files while an index is built; None for the temporary folder of the system.

    Returns:
        The index, the same for the same keys, setting, seed, threads and faiss version.

    Raises:
        UsageError: The setting is invalid, or there are no keys to train on.
        MemoryFolderError: The keys cannot be read, or one is not finite.

    Examples:
        >>> import numpy as np
        >>> from ibidem.retrieve import ArrayKeys, build_index
        >>> build_index(ArrayKeys(np.eye(4, dtype=np.float16)), "exact", seed=0).size
        4
    """
    settings = resolve(setting, keys.size, keys.dimension, device=device)
    if isinstance(settings, ExactSettings):
        for note in settings.notes:
            warnings.warn(note, stacklevel=2)
        place = check_device(device)
        coded = settings.coded and fits_as_float16(keys, place, _INT8_COPIES)
        return int8_index(keys, place, seed) if coded else exact_index(keys, place)
    if keys.size == 0:
        raise UsageError(f"The memory is empty, so there is nothing to build {setting!r} from. Use 'exact'.")
    if isinstance(settings, ListSettings):
        place = check_device(device)
        fits = fits_as_float16(keys, place, _LIST_COPIES)
        return list_index(keys, settings, place, seed) if fits else exact_index(keys, place)
    report = progress or (lambda _stage, _done, _total: None)
    if isinstance(settings, NativeSettings):
        return build_native(keys, settings, seed=seed, threads=threads, report=report, scratch=scratch)
    return build_faiss(keys, settings, seed=seed, threads=threads, report=report)


def exact_index(keys: Keys, device: str | torch.device) -> Index:
    """Make an exact index: the GPU scan if a GPU has room for float16 keys, else search with an error bound.

    Args:
        keys: the keys.
        device: where they are searched.

    Returns:
        A `ScanIndex` or an `ExactIndex`.
    """
    place = check_device(device)
    return ScanIndex(keys, place) if fits_as_float16(keys, place) else ExactIndex(keys, place)


def int8_index(keys: Keys, device: torch.device, seed: int) -> Index:
    """Make a scan of int8 codes; without codes, and with a warning, if these lose too much recall.

    Args:
        keys: the keys, which must fit on the device twice.
        device: a GPU.
        seed: of the queries that measure the recall.

    Returns:
        A `ScanIndex`, with codes where their recall@16 is at least INT8_RECALL.
    """
    index = ScanIndex(keys, device, coded=True)
    plain = index.without_codes()
    if keys.size == 0:
        return plain
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed, exact=plain)
    recall = recall_at(index, keys, probe)
    if recall >= INT8_RECALL:
        return index
    note = f"int8 codes of these keys find {recall:.3f} of the 16 nearest, below {INT8_RECALL}: the search is exact."
    warnings.warn(note, stacklevel=3)
    return plain


def list_index(keys: Keys, settings: ListSettings, device: torch.device, seed: int) -> Index:
    """Make an inverted file on a device, with the nprobe that reaches the target recall.

    Without a given nprobe, a scan of all keys is returned, with a warning, if probing cannot reach that recall.

    Args:
        keys: the keys, at least one; they must fit on the device four times.
        settings: the number of lists, nprobe, and the bytes of product codes.
        device: a GPU.
        seed: of k-means and of the queries that measure the recall.

    Returns:
        A `ListIndex` with its recall@16, or a `ScanIndex`.
    """
    given = settings.nprobe
    exact = ScanIndex(keys, device)
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed, exact=exact)
    index = ListIndex(
        keys,
        device,
        lists=settings.lists,
        nprobe=given or _LIST_NPROBE,
        seed=seed,
        code_bytes=settings.code_bytes,
    )
    recall = recall_at(index, keys, probe)
    while given is None and recall < LIST_RECALL and index.nprobe < index.lists // _LEAST_SAVING:
        index = index.with_nprobe(round(index.nprobe * 2**0.5))
        recall = recall_at(index, keys, probe)
    if given is not None or recall >= LIST_RECALL:
        return index.with_nprobe(index.nprobe, recall)
    warnings.warn(
        f"Probing {index.nprobe} of {index.lists} lists finds {recall:.3f} of the 16 nearest, below {LIST_RECALL}: "
        "the search is exact.",
        stacklevel=3,
    )
    return exact
