"""Graphs over several ranks: who they are, how they find each other, what moves their bytes, what they report."""
