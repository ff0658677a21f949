"""Source vectors: one small int8 vector for each stored sentence pair, projected from its mean encoder state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from ibidem.errors import DamagedMemoryError
from ibidem.memory.manifest import SOURCE_WIDTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The fewest sources that a projection is fitted to; fewer do not span enough directions.
LEAST_SOURCES = 256
_LENGTH = 127


@dataclass(frozen=True)
class SourceProjection:
    """The map from mean encoder states to source vectors; a memory stores it as an artefact.

    Attributes:
        mean: [d] float32, subtracted first.
        projection: [d, 64] float32.

    Examples:
        >>> import numpy as np
        >>> projection = SourceProjection.random(8)
        >>> projection.vectors(np.ones((3, 8), np.float32)).shape
        (3, 64)
    """

    # The names of the tensors in a file.
    NAMES: ClassVar = ("source_mean", "source_projection")

    mean: NDArray[np.float32]
    projection: NDArray[np.float32]

    @classmethod
    def random(cls, dimension: int) -> SourceProjection:
        """Return a fixed random orthogonal projection without a mean, for a memory that grows from its first pair.

        Args:
            dimension: d, the dimension of the encoder states.
        """
        drawn = np.random.default_rng(0).standard_normal((dimension, min(dimension, SOURCE_WIDTH)))
        return cls(np.zeros(dimension, np.float32), _pad(np.linalg.qr(drawn)[0]))

    @classmethod
    def fit(cls, means: NDArray[np.floating[Any]]) -> SourceProjection:
        """Fit a projection by PCA.

        Args:
            means: [n, d] mean encoder states of sources. If there are too few, the result is `random`.
        """
        if len(means) < LEAST_SOURCES:
            return cls.random(means.shape[1])
        plain = means.astype(np.float64)
        mean = plain.mean(axis=0)
        directions = np.linalg.eigh(np.cov(plain - mean, rowvar=False))[1][:, ::-1][:, :SOURCE_WIDTH]
        # The sign of an eigenvector is arbitrary: its largest component is made positive.
        signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
        return cls(mean.astype(np.float32), _pad(directions * signs))

    @classmethod
    def read(cls, payload: bytes) -> SourceProjection:
        """Read a projection from safetensors.

        Args:
            payload: The bytes of a file, which may hold other tensors too.

        Raises:
            DamagedMemoryError: The file has no valid projection.
        """
        try:
            tensors = load(payload)
            mean, projection = (np.asarray(tensors[name], np.float32) for name in cls.NAMES)
        except (SafetensorError, KeyError, ValueError) as error:
            raise DamagedMemoryError(
                f"The projection of sources cannot be read ({error!r}): restore it from a copy."
            ) from error
        if projection.shape != (*mean.shape, SOURCE_WIDTH) or not np.isfinite(projection).all():
            raise DamagedMemoryError("The projection of sources is invalid: restore it from a copy.")
        return cls(mean, projection)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the tensors of a file, by name."""
        return dict(zip(self.NAMES, (self.mean, self.projection), strict=True))

    def summary(self) -> dict[str, object]:
        """Return what the manifest stores about the projection."""
        return {"input_dimension": len(self.mean), "dimension": SOURCE_WIDTH}

    def vectors(self, means: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
        """Return the source vectors [n, 64] of mean encoder states [n, d].

        A vector has the length 127 before it is rounded; one that is zero stays zero.
        """
        projected = (means.astype(np.float32) - self.mean) @ self.projection
        lengths = np.linalg.norm(projected, axis=1, keepdims=True)
        scaled = _LENGTH * projected / np.where(lengths > 0, lengths, 1)
        return np.rint(scaled).astype(np.int8)


def _pad(directions: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return directions [d, at most 64] as [d, 64] float32, with zeros at the end."""
    padded = np.zeros((len(directions), SOURCE_WIDTH), np.float32)
    padded[:, : directions.shape[1]] = directions
    return padded
