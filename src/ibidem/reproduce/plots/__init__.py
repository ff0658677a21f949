"""Figures, as PNG and SVG: readable in black and white, with units on the axes."""
