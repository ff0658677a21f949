"""Kinds of rows: each says what it needs, and measures itself on a bench."""
