"""C14: random configurations, see hunt.py."""
