"""Sizes as the field writes them."""

MiB = 1 << 20
