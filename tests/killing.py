"""Processes that are killed, again and again, and then left to finish."""

import os
import signal
import subprocess
import time


def kill_at_random_moments(start, seconds, kills, rng, again, after=lambda: None):
    """Start a process and kill -9 it with all its children, until it was killed so often.

    Parameters
    ----------
    start : callable -> Popen
        Begins the work in a session of its own.
    seconds : float
        How long the work takes when nobody disturbs it.
    kills : int
    rng : random.Random
    again : callable
        Called where the work was done before it could be killed, so that there is some.
    after : callable
        Called after every start, to look at what is there.
    """
    killed = 0
    while killed < kills:
        process = start()
        try:
            assert process.wait(rng.uniform(0, seconds)) == 0
            again()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        after()


def seconds_of(call):
    """How long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
