"""Drills: queries broken on purpose, on real processes or in the simulator, and judged."""
