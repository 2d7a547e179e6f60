"""Where every byte lives: lifetimes, plans, limits, explanations."""
