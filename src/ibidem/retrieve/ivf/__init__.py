"""The native index: an inverted file over codes of two bits in one mapped file, searched by the native library."""

from ibidem.retrieve.ivf.building import build_native
from ibidem.retrieve.ivf.index import NativeIndex, load_native
from ibidem.retrieve.ivf.settings import NAME, NativeSettings, resolve_native

__all__ = ["NAME", "NativeIndex", "NativeSettings", "build_native", "load_native", "resolve_native"]
