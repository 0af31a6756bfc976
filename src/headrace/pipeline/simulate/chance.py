"""Chance that repeats: generators for the plan, and noise that is a function of its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def generator(seed: int, *place: int) -> np.random.Generator:
    """One for each purpose, so that a change of one part of the plan leaves the others as they were."""
    return np.random.default_rng([seed, *place])


def noise(place: Any, salt: Any, below: Any) -> Ints:
    """0 up to, not including, `below`, for every place. Integers alone: equal on every machine."""
    mixed = np.asarray(place, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(salt, np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    limit = np.maximum(np.asarray(below), 1).astype(np.uint64)
    return np.asarray((mixed >> np.uint64(31)) % limit).astype(np.int64)
