"""`python -m cfhelpers`: the same as the command `cfhelpers`."""

from cfhelpers.auditing.command import main

if __name__ == "__main__":
    raise SystemExit(main())
