# The notebooks as jobs: `make` runs them at the quick profile, `make paper` at the full one, and only what is out of date.
# On Slurm: .venv/bin/snakemake --profile profiles/slurm --config profile=paper
import os
import sys
from glob import glob

sys.path.insert(0, f"{workflow.basedir}/tools")
import runs

PLAN = runs.plan(config.get("profile", "quick"))  # refuses a misspelt name before anything runs
CODE = sorted(glob("cfhelpers/**/*.py", recursive=True)) + ["tools/notebooks.py", "profiles/settings.yaml"]
os.environ["CFHELPERS_HOME"] = workflow.basedir
os.environ["JUPYTER_PATH"] = f"{sys.prefix}/share/jupyter"  # the kernel python3 is this environment's
if "CFHELPERS_DATA" in os.environ:  # notebooks run in their own folder
    os.environ["CFHELPERS_DATA"] = os.path.abspath(os.environ["CFHELPERS_DATA"])
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"


def executed(names):
    return [f"results/notebooks/{name}.ipynb" for name in names]


rule all:
    input:
        executed(PLAN),


# Snakemake deletes a job's outputs before the job and again if it fails. Rows, figures and tables are committed, and must
# not be lost so: the only output is the executed copy, which git ignores. It is written last, and only if everything that
# the notebook is to write was written anew; each file is replaced at once, so that a killed job leaves whole files.
for PLACE, (NAME, RUN) in enumerate(PLAN.items()):

    rule:
        name:
            NAME.replace("/", "_")
        input:
            notebook=f"notebooks/{RUN.notebook}.ipynb",
            needs=executed(RUN.needs),
            code=CODE,
        output:
            executed([NAME]),
        params:
            given=[f"{key}={value}" for key, value in RUN.parameters.items()],
            writes=RUN.writes,
        priority: len(PLAN) - PLACE if runs.is_awaited(PLAN, NAME) else 0  # others wait for these; first lines first
        threads: 1
        resources:
            mem_mb=12000 if any(name.endswith("source") for name in RUN.parameters) else 4000,
            runtime=120,
        shell:
            "OMP_NUM_THREADS={threads} '{sys.executable}' tools/notebooks.py run {input.notebook} {output} "
            "{params.given:q} --writes {params.writes:q}"
