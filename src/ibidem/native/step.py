"""The retrieval step in native code: from decoder states to the best tokens of the mixture in one call."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.combiner import Best, check_count
from ibidem.native.ivf import search_settings, search_threads
from ibidem.native.library import dense, require
from ibidem.native.remote import RemoteRun, RemoteSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native.beams import NativeBeams
    from ibidem.native.combiner import CombinerKernel
    from ibidem.native.compactor import CompactorKernel
    from ibidem.native.ivf import Ivf, SearchLimits


# As StepStatus of native/step/retrieval_context.h.
_NESTED, _UNKNOWN_ENTRY, _OUT_OF_MEMORY = -3, -1, 0


class StepResult(NamedTuple):
    """The result of a retrieval step.

    Attributes:
        distances: Squared distances [rows, k] float32.
        entries: Entry numbers [rows, k] int64, -1 where there is no neighbour.
        values: Tokens of the neighbours [rows, k] int64.
    """

    distances: Tensor
    entries: Tensor
    values: Tensor


class RetrievalPolicy(NamedTuple):
    """Which hypotheses retrieve, and for which a reduced search is enough.

    Attributes:
        margin: A hypothesis whose log-probability is more than this below the best of its sentence does not retrieve.
        reduced_gap: A hypothesis that is more than this below the best one searches with the reduced settings.
        reduced_above: So does one for which the base model gives some token more than this probability.
    """

    margin: float
    reduced_gap: float
    reduced_above: float


class _Policy(ctypes.Structure):
    """RetrievalPolicy of native/step/retrieval_context.h."""

    _fields_ = tuple((name, ctypes.c_float) for name in RetrievalPolicy._fields)


class _EntryTable(ctypes.Structure):
    """EntryTable of native/step/retrieval_context.h."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("log_probs", ctypes.c_void_p),
        ("sentences", ctypes.c_void_p),
        ("vectors", ctypes.c_void_p),
        ("dimension", ctypes.c_int64),
    )


class SentenceTable(NamedTuple):
    """What a contextual combiner needs to know of n entries and their sentences.

    Attributes:
        log_probs: The base model's log-probability of each entry's token when it was stored [n].
        sentences: The sentence of each entry [n], a row of `source_vectors`.
        source_vectors: The vector of each source [sentences, m] int8, of length 127.
    """

    log_probs: Tensor
    sentences: Tensor
    source_vectors: Tensor


class _Context(ctypes.Structure):
    """RetrievalContext of native/step/retrieval_context.h."""

    _fields_ = (
        ("compactor", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("dimension", ctypes.c_int64),
        ("ivf", ctypes.c_void_p),
        ("settings", ctypes.c_void_p),
        ("reduced", ctypes.c_void_p),
        ("alive_mask", ctypes.c_void_p),
        ("entries", _EntryTable),
        ("combiner", ctypes.c_void_p),
    )


class RetrievalStep:
    """A compactor, a search, the values of the entries and a combiner, called as one.

    The results equal those of the parts called one after another. For the few rows of a decoding step that costs much
    Python; here the arguments are checked and the results wrapped once, and one group of threads does all the work.
    """

    def __init__(
        self,
        compactor: CompactorKernel | None,
        search: Ivf | RemoteSearch,
        probing: SearchLimits | None,
        reduced: SearchLimits | None,
        values: Tensor,
        combiner: CombinerKernel,
        *,
        sentences: SentenceTable | None = None,
        alive_mask: NDArray[np.uint16] | None = None,
        threads: int | None = None,
    ) -> None:
        """Join the parts.

        Args:
            compactor: Makes queries from states; None where the states are the queries.
            search: The index, or a search in other processes. These have limits and a mask of their own: the next two
                arguments and `alive_mask` are for an index.
            probing: How far a search goes.
            reduced: How far a reduced search goes.
            values: The token of each entry [n].
            combiner: Weighs the neighbours.
            sentences: What a contextual combiner needs to know of the entries; None for other combiners.
            alive_mask: As for `Ivf.search`.
            threads: The most threads; None: all that torch has.

        Raises:
            ValueError: The parts do not fit: a contextual combiner without `sentences`, or their sizes differ from that
                of values; a compactor of another dimension; an index without limits; no values.
        """
        if not isinstance(search, RemoteSearch) and (probing is None or reduced is None):
            raise ValueError("an index needs limits of its searches")
        if compactor is not None and compactor.outputs != search.dimension:
            raise ValueError(f"queries of {compactor.outputs} components for a search of {search.dimension}")
        if len(values) == 0:
            raise ValueError("a retrieval step needs at least one entry")
        # The library points to these.
        self._compactor, self._search, self._combiner, self._alive_mask = compactor, search, combiner, alive_mask
        self._settings = [
            None if limits is None else search_settings(combiner.k, limits) for limits in (probing, reduced)
        ]
        self._values = dense(values, torch.int64)
        self._sentences = None if sentences is None else _dense_table(sentences, len(values))
        if combiner.needs_context and self._sentences is None:
            raise ValueError("a contextual combiner needs a table of sentences")
        self._source_dimension = 0 if self._sentences is None else self._sentences.source_vectors.shape[1]
        self._threads = threads
        self._inputs = search.dimension if compactor is None else compactor.inputs
        self._parts = _Context(
            None if compactor is None else compactor.address,
            self._inputs,
            search.dimension,
            None if isinstance(search, RemoteSearch) else search.address,
            *(None if settings is None else ctypes.addressof(settings) for settings in self._settings),
            None if alive_mask is None else alive_mask.ctypes.data,
            _EntryTable(
                len(self._values),
                self._values.data_ptr(),
                *([None] * 3 if self._sentences is None else [part.data_ptr() for part in self._sentences]),
                self._source_dimension,
            ),
            combiner.address,
        )
        self._address = ctypes.addressof(self._parts)
        self._retrieve, self._retrieve_and_mix = require().retrieve, require().retrieve_and_mix

    def __call__(self, states: Tensor, group_size: int = 1) -> StepResult:
        """Retrieve the neighbours of states [rows, d].

        Args:
            states: Decoder states; a row that begins with NaN has no neighbours.
            group_size: As for `Ivf.search`.

        Raises:
            ValueError: The states have the wrong dimension.
            IndexError: An entry was found that has no value.
            RuntimeError: The function of a `RemoteSearch` called this; any other exception of that function is raised
                as it is.
        """
        plain, k = self._checked(states), self._combiner.k
        rows = len(plain)
        near = torch.empty(rows, k, dtype=torch.float32)
        entries = torch.empty(rows, k, dtype=torch.int64)
        values, remote = torch.empty_like(entries), self._prepare_remote(plain, group_size)
        done = self._retrieve(
            self._address,
            None if remote is None else remote.address,
            plain.data_ptr(),
            rows,
            group_size,
            *(one.data_ptr() for one in (near, entries, values)),
            search_threads(rows, self._threads),
        )
        self._check(done, rows, remote)
        return StepResult(near, entries, values)

    def best_tokens(
        self,
        states: Tensor,
        logits: Tensor,
        beams: NativeBeams,
        policy: RetrievalPolicy,
        count: int,
        banned: Sequence[int],
        source_vectors: Tensor | None = None,
    ) -> Best:
        """Find the best tokens of the mixture for the hypotheses of `beams`; see `best_of_mixture`.

        Args:
            states: [rows, d], the hypotheses of each sentence adjacent.
            logits: [rows, V] of the base model.
            beams: The hypotheses.
            policy: Which of them retrieve.
            count: The number of tokens.
            banned: Tokens that are never returned.
            source_vectors: The vector of each sentence of the batch [sentences, m], of length 1, where the combiner
                needs it.

        Returns:
            Log-probabilities and tokens, each [rows, count].

        Raises:
            ValueError: The shapes do not fit, or fewer than `count` tokens are allowed.
            IndexError: An entry was found that has no value.
            RuntimeError: As for a call of the step, which also passes on exceptions.
        """
        plain, given = self._checked(states), dense(logits)
        rows, size = given.shape
        if len(plain) != rows or rows != beams.rows:
            raise ValueError(f"{len(plain)} states and {rows} rows of logits were given of {beams.rows} hypotheses")
        mask, banned_count = check_count(count, size, banned)
        vectors = self._checked_vectors(source_vectors, beams, count)
        scores = torch.empty(rows, count, dtype=torch.float32)
        tokens = torch.empty(rows, count, dtype=torch.int64)
        remote = self._prepare_remote(plain, beams.beam)
        done = self._retrieve_and_mix(
            self._address,
            None if remote is None else remote.address,
            ctypes.byref(_Policy(*policy)),
            beams.handle,
            plain.data_ptr(),
            rows,
            beams.beam,
            None if vectors is None else vectors.data_ptr(),
            given.data_ptr(),
            size,
            mask.data_ptr(),
            banned_count,
            count,
            scores.data_ptr(),
            tokens.data_ptr(),
            search_threads(rows, self._threads),
        )
        self._check(done, rows, remote)
        return Best(scores, tokens)

    def _checked(self, states: Tensor) -> Tensor:
        if states.shape[1] != self._inputs:
            raise ValueError(f"States of {states.shape[1]} numbers were given; this memory takes {self._inputs}.")
        return dense(states)

    def _checked_vectors(self, vectors: Tensor | None, beams: NativeBeams, count: int) -> Tensor | None:
        if not self._combiner.needs_context:
            return None
        wanted = [beams.sentences, self._source_dimension]
        if vectors is None or list(vectors.shape) != wanted or count < 2:
            raise ValueError(f"a contextual combiner needs source vectors {wanted} and at least two tokens")
        return dense(vectors)

    def _prepare_remote(self, states: Tensor, group_size: int) -> RemoteRun | None:
        if not isinstance(self._search, RemoteSearch):
            return None
        return RemoteRun(self._search, states, self._combiner.k, group_size, compacts=self._compactor is not None)

    def _check(self, done: int, rows: int, remote: RemoteRun | None) -> None:
        if done == _NESTED:
            raise RuntimeError("The function of a RemoteSearch called a retrieval step on its own thread.")
        if done == _OUT_OF_MEMORY:
            raise MemoryError(f"Out of memory to search for {rows} states.")
        if remote is not None:
            remote.check()
        if done == _UNKNOWN_ENTRY:
            raise IndexError(f"an entry is none of the {len(self._values)} whose values are known")


def _dense_table(table: SentenceTable, entries: int) -> SentenceTable:
    log_probs, sentences = dense(table.log_probs), dense(table.sentences, torch.int32)
    vectors = dense(table.source_vectors, torch.int8)
    if len(log_probs) != entries or len(sentences) != entries or vectors.ndim != 2:
        raise ValueError(f"log-probabilities or sentences of other entries than the {entries} whose values are known")
    if entries and not 0 <= int(sentences.min()) <= int(sentences.max()) < len(vectors):
        raise ValueError(f"an entry belongs to none of the {len(vectors)} sentences")
    return SentenceTable(log_probs, sentences, vectors)


def look_up(table: Tensor, entries: Tensor) -> Tensor:
    """Look up the value of each entry.

    Args:
        table: Values [n] int64, n at least 1.
        entries: [r, k] int64, -1 where there is none.

    Returns:
        [r, k] int64; table[0] for an absent entry.

    Raises:
        IndexError: An entry is beyond the table.
    """
    plain, wanted = dense(table, torch.int64), dense(entries, torch.int64)
    values = torch.empty(wanted.shape, dtype=torch.int64)
    done = require().look_up(plain.data_ptr(), len(plain), wanted.data_ptr(), wanted.numel(), values.data_ptr())
    if not done:
        raise IndexError(f"an entry is none of the {len(plain)} whose values are known")
    return values
