"""ibidem: a translator with a memory that can cite its sources."""

__version__ = "0.1.0"
