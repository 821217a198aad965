"""The upper floor: what regenerates one paper.

The method, on the floor below, never imports it.
"""
