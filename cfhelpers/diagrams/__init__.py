"""Drawings of ideas for the lessons: data or a few numbers in, a Figure out.

Pictures of results are drawn by `cfhelpers.plots`. Here is what a lecturer would draw on
the board:

- `sets`: from probabilities to a set, the n + 1 slots, the stairs of APS, the Beta law;
- `metrics`: a metric as a filter on people, many groups, what an average hides;
- `search`: the search for a threshold;
- `guarantee`: bounds, the walk down, the staircase;
- `scale`: files as tables of counts, the bins that can hold λ.

The caption below a drawing is its alternative text, as for every figure.
"""
