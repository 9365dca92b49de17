"""Views of a run: progress while it goes on, tables when it is over."""
