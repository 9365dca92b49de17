"""`python -m smtdist` is the command `smtdist`."""

from smtdist.cli import main

if __name__ == "__main__":
    main()
