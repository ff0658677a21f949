"""The native index: an inverted file of 2-bit codes in one mapped file, searched by the native library."""
