"""nbval compares what a notebook prints; a library's new warning on stderr is no change of result."""


def pytest_collectstart(collector):
    if collector.path.suffix == ".ipynb" and hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
