"""The least of a function of several variables: Nelder and Mead's simplex (The Computer Journal 7, 1965).

It needs no derivative, and a replay has none: a request goes into one step or the next.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Point = NDArray[np.float64]


def search(loss: Callable[[Point], float], start: Point, size: float, most: int, tolerance: float = 1e-4) -> Point:
    """The best point found from `start` on, with a first simplex of `size`, in about `most` evaluations of the loss;
    earlier when the simplex' losses differ by less than `tolerance`."""
    points = [start, *(start + size * axis for axis in np.eye(len(start)))]
    losses = [loss(point) for point in points]
    asked = len(points)
    while asked < most and max(losses) - min(losses) > tolerance:
        order = np.argsort(losses, kind="stable")
        points, losses = [points[place] for place in order], [losses[place] for place in order]
        middle = np.mean(points[:-1], axis=0)
        point, found, tries = _better(loss, middle, points[-1], losses)
        asked += tries
        if found < losses[-1]:
            points[-1], losses[-1] = point, found
            continue
        points = [points[0], *((points[0] + point) / 2 for point in points[1:])]
        losses = [losses[0], *(loss(point) for point in points[1:])]
        asked += len(start)
    return points[int(np.argmin(losses))]


def _better(loss: Callable[[Point], float], middle: Point, worst: Point, losses: list[float]) -> tuple[Point, float, int]:
    """A point instead of the worst: reflected, further out, or nearer; with its loss and the evaluations."""
    reflected = 2 * middle - worst
    found = loss(reflected)
    if found < losses[0]:
        further = 3 * middle - 2 * worst
        beyond = loss(further)
        return (further, beyond, 2) if beyond < found else (reflected, found, 2)
    if found < losses[-2]:
        return reflected, found, 1
    nearer = (middle + (reflected if found < losses[-1] else worst)) / 2
    return nearer, loss(nearer), 2
