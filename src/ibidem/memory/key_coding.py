"""The int8 codes of compact keys: one offset and one step for each dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from ibidem.errors import DamagedMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_CODE = 127
# Standard deviations on either side of the offset that the codes span. Farther components are clipped.
SPAN = 4.5
# The least step whose multiples float16 holds, which has three bits.
_LEAST_STEP = 2.0**-22


@dataclass(frozen=True)
class KeyCoding:
    """Codes of keys: component j is offset[j] + step[j] * code, with codes from -127 to 127.

    Attributes:
        offset: [d] float32.
        step: [d] float32, above 0.

    Examples:
        >>> import numpy as np
        >>> coding = KeyCoding(np.zeros(2, np.float32), np.full(2, 0.5, np.float32))
        >>> coding.encode(np.array([[1.0, -2.6]]))
        array([[ 2, -5]], dtype=int8)
        >>> coding.decode(np.array([[2, -5]], np.int8))
        array([[ 1. , -2.5]], dtype=float16)
    """

    # The names of the tensors in a compactor's file.
    NAMES: ClassVar = ("key_offset", "key_step")

    offset: NDArray[np.float32]
    step: NDArray[np.float32]

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return len(self.offset)

    @classmethod
    def fit(cls, sample: NDArray[Any]) -> KeyCoding:
        """Fit the codes to a sample of keys.

        The step has three significant bits, and the offset is a multiple of it. So float16 holds decoded keys exactly
        where the offset is below 128 steps, and all readers compute with the same numbers.

        Args:
            sample: [n, d] finite keys, n at least 1.
        """
        plain = np.asarray(sample, np.float64)
        mean, deviation = plain.mean(axis=0), plain.std(axis=0)
        wanted = np.maximum(SPAN * deviation / LARGEST_CODE, _LEAST_STEP)
        unit = 2.0 ** (np.floor(np.log2(wanted)) - 2)
        step = np.rint(wanted / unit) * unit
        return cls((np.rint(mean / step) * step).astype(np.float32), step.astype(np.float32))

    @classmethod
    def read(cls, payload: bytes) -> KeyCoding:
        """Read the coding in the file of a compactor.

        Args:
            payload: The bytes of the file, safetensors.

        Raises:
            DamagedMemoryError: The file has no valid coding.
        """
        try:
            tensors = load(payload)
            offset, step = (np.asarray(tensors[name], np.float32) for name in cls.NAMES)
        except (SafetensorError, KeyError, ValueError) as error:
            raise DamagedMemoryError(
                f"The compactor's file has no coding of compact keys ({error!r}): train the compactor again."
            ) from error
        valid = offset.ndim == 1 and offset.shape == step.shape
        if not valid or not (np.isfinite(offset) & np.isfinite(step) & (step > 0)).all():
            raise DamagedMemoryError("The coding of compact keys is invalid: train the compactor again.")
        return cls(offset, step)

    def typical_distance(self) -> float:
        """Return the mean squared distance between two keys of the sample, which the steps approximate."""
        return float(2 * np.square(np.asarray(self.step, np.float64) * LARGEST_CODE / SPAN).sum())

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the tensors that a compactor's file stores."""
        return dict(zip(self.NAMES, (self.offset, self.step), strict=True))

    def encode(self, keys: NDArray[Any]) -> NDArray[np.int8]:
        """Return the codes [n, d] of keys [n, d]; components beyond the range of the codes are clipped."""
        steps = (np.asarray(keys, np.float32) - self.offset) / self.step
        codes: NDArray[np.int8] = np.clip(np.rint(steps), -LARGEST_CODE, LARGEST_CODE).astype(np.int8)
        return codes

    def decode(self, codes: NDArray[np.int8]) -> NDArray[np.float16]:
        """Return the keys [n, d] of codes [n, d]."""
        return (self.offset + self.step * codes).astype(np.float16)
